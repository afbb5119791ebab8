"""MNIST with parameter servers, asynchronous, between-graph replication with a Supervisor.

    millrace launch --python --ps 1 --workers 2 -- mnist_supervisor.py          # Millrace's servers
    millrace launch --ps 1 --workers 2 -- python mnist_supervisor.py            # TensorFlow's

The program is that of old tutorials, and knows nothing of Millrace. Its place in the cluster comes from flags (with --host_flags) or from TF_CONFIG.
"""

import json
import math
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
flags.DEFINE_integer("hidden_units", 100, "Units of the hidden layer")
flags.DEFINE_integer("train_steps", 2000, "Global steps of the training")
flags.DEFINE_integer("batch_size", 100, "Images in a step")
flags.DEFINE_float("learning_rate", 0.001, "Of Adam")
flags.DEFINE_string("train_dir", None, "Where checkpoints are written; none without it")
FLAGS = flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = FLAGS.task_index == 0
    mnist = input_data.read_data_sets(FLAGS.data_dir, seed=FLAGS.task_index)
    worker_device = "/job:worker/task:%d/cpu:0" % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=worker_device, ps_device="/job:ps/cpu:0", cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(tf.truncated_normal([784, FLAGS.hidden_units], stddev=1.0 / 28), name="hid_w")
        hid_b = tf.Variable(tf.zeros([FLAGS.hidden_units]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([FLAGS.hidden_units, 10], stddev=1.0 / math.sqrt(FLAGS.hidden_units)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
        x = tf.placeholder(tf.float32, [None, 784])
        y_ = tf.placeholder(tf.float32, [None, 10])
        hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
        y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
        cross_entropy = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
        train_step = tf.train.AdamOptimizer(FLAGS.learning_rate).minimize(cross_entropy, global_step=global_step)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1)), tf.float32))
        init_op = tf.global_variables_initializer()

    sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.train_dir, init_op=init_op, recovery_wait_secs=1, global_step=global_step,
                             summary_op=None)
    config = tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    sess = sv.prepare_or_wait_for_session(server.target, config=config)

    local_step, step = 0, 0
    while step < FLAGS.train_steps:
        batch_xs, batch_ys = mnist.train.next_batch(FLAGS.batch_size)
        _, step = sess.run([train_step, global_step], feed_dict={x: batch_xs, y_: batch_ys})
        local_step += 1
        if local_step % 100 == 1:
            print("%f: Worker %d: training step %d done (global step: %d)" % (time.time(), FLAGS.task_index, local_step, step), flush=True)
    print("%f: Worker %d: training step %d done (global step: %d)" % (time.time(), FLAGS.task_index, local_step, step))
    value = sess.run(accuracy, feed_dict={x: mnist.test.images, y_: mnist.test.labels})
    print("Worker %d: test accuracy %.4f" % (FLAGS.task_index, value))


if __name__ == "__main__":
    tf.app.run()
