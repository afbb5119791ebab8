"""MNIST with parameter servers, asynchronous, between-graph replication with a MonitoredTrainingSession and hooks.

    millrace launch --python --ps 1 --workers 2 -- mnist_monitored.py --train_dir=DIR     # Millrace's servers
    millrace launch --ps 1 --workers 2 -- python mnist_monitored.py --train_dir=DIR       # TensorFlow's

A worker that finds the variables not yet initialised looks again after 30 s: that is the waiting time of TensorFlow's MonitoredTrainingSession.
"""

import json
import os
import time

import input_data
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

task = json.loads(os.environ.get("TF_CONFIG", "{}"))
cluster_of_task = task.get("cluster", {})

flags = tf.app.flags
flags.DEFINE_string("data_dir", "examples/data/mnist", "Where the images are")
flags.DEFINE_string("ps_hosts", ",".join(cluster_of_task.get("ps", [])), "host:port of the parameter servers")
flags.DEFINE_string("worker_hosts", ",".join(cluster_of_task.get("worker", [])), "host:port of the workers")
flags.DEFINE_string("job_name", task.get("task", {}).get("type"), "ps or worker")
flags.DEFINE_integer("task_index", task.get("task", {}).get("index", 0), "Which task of the job this is")
flags.DEFINE_integer("train_steps", 2000, "Global steps of the training")
flags.DEFINE_string("train_dir", None, "Where checkpoints are written; none without it")
FLAGS = flags.FLAGS


class FinalAccuracy(tf.train.SessionRunHook):
    """Evaluates the model on the test images when the training ends."""

    def __init__(self, accuracy, feed_dict):
        self.accuracy, self.feed_dict = accuracy, feed_dict

    def end(self, session):
        print("Worker %d: test accuracy %.4f" % (FLAGS.task_index, session.run(self.accuracy, self.feed_dict)))


def dense(x, name, inputs, outputs):
    w = tf.get_variable(name + "/w", [inputs, outputs], initializer=tf.glorot_uniform_initializer())
    return tf.nn.xw_plus_b(x, w, tf.get_variable(name + "/b", [outputs], initializer=tf.zeros_initializer()))


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    mnist = input_data.read_data_sets(FLAGS.data_dir, seed=FLAGS.task_index)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 784])
        y_ = tf.placeholder(tf.float32, [None, 10])
        hidden = tf.nn.relu(dense(x, "hidden", 784, 128))
        logits = dense(hidden, "logits", 128, 10)
        loss = tf.losses.softmax_cross_entropy(y_, logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(y_, 1)), tf.float32))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)

    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.train_steps), FinalAccuracy(accuracy, {x: mnist.test.images, y_: mnist.test.labels})]
    local_step = 0
    # A worker that comes late does not wait for another one that has ended.
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    with tf.train.MonitoredTrainingSession(master=server.target, is_chief=FLAGS.task_index == 0, checkpoint_dir=FLAGS.train_dir, hooks=hooks,
                                           config=config) as session:
        while not session.should_stop():
            batch_xs, batch_ys = mnist.train.next_batch(100)
            _, step = session.run([train_op, global_step], feed_dict={x: batch_xs, y_: batch_ys})
            local_step += 1
            if local_step % 100 == 1:
                print("%f: Worker %d: training step %d done (global step: %d)" % (time.time(), FLAGS.task_index, local_step, step), flush=True)
    print("%f: Worker %d: training step %d done (global step: %d)" % (time.time(), FLAGS.task_index, local_step, step))


if __name__ == "__main__":
    tf.app.run()
