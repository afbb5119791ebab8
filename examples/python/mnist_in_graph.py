"""MNIST with in-graph replication: one client has the whole graph, with the parameters on the ps and a tower on each worker.

    millrace launch --python --ps 1 --workers 2 -- mnist_in_graph.py            # Millrace's servers
    millrace launch --ps 1 --workers 2 -- python mnist_in_graph.py              # TensorFlow's

The client is worker 0. The other workers serve until it puts something into their queue "done".
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
flags.DEFINE_integer("train_steps", 1000, "Steps of the training")
flags.DEFINE_integer("batch_size", 100, "Images of each worker in a step")
FLAGS = flags.FLAGS


def done_queue(index):
    with tf.device("/job:worker/task:%d" % index):
        return tf.FIFOQueue(1, tf.int32, shared_name="done_%d" % index)


def dense(x, name, inputs, outputs):
    w = tf.get_variable(name + "/w", [inputs, outputs], initializer=tf.glorot_uniform_initializer())
    return tf.nn.xw_plus_b(x, w, tf.get_variable(name + "/b", [outputs], initializer=tf.zeros_initializer()))


def tower_loss(x, y_):
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        hidden = tf.nn.relu(dense(x, "hidden", 784, 100))
        logits = dense(hidden, "logits", 100, 10)
    return tf.losses.softmax_cross_entropy(y_, logits), logits


def main(_):
    workers = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    if FLAGS.task_index > 0:
        with tf.Session(server.target) as sess:
            sess.run(done_queue(FLAGS.task_index).dequeue())
        return

    mnist = input_data.read_data_sets(FLAGS.data_dir)
    x = tf.placeholder(tf.float32, [None, 784])
    y_ = tf.placeholder(tf.float32, [None, 10])
    optimizer = tf.train.GradientDescentOptimizer(0.5)
    tower_grads = []
    for i, (xs, ys) in enumerate(zip(tf.split(x, len(workers)), tf.split(y_, len(workers)))):
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % i, cluster=cluster)):
            loss, logits = tower_loss(xs, ys)
            tower_grads.append(optimizer.compute_gradients(loss))
    with tf.device("/job:ps/task:0"):
        averaged = [(tf.add_n([gradient for gradient, _ in pairs]) / len(pairs), pairs[0][1]) for pairs in zip(*tower_grads)]
        train_op = optimizer.apply_gradients(averaged, global_step=tf.train.get_or_create_global_step())
    with tf.device("/job:worker/task:0"):
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(ys, 1)), tf.float32))
    stop = [done_queue(i).enqueue(1) for i in range(1, len(workers))]

    with tf.Session(server.target) as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(1, FLAGS.train_steps + 1):
            batch_xs, batch_ys = mnist.train.next_batch(FLAGS.batch_size * len(workers))
            sess.run(train_op, feed_dict={x: batch_xs, y_: batch_ys})
            if step % 100 == 1 or step == FLAGS.train_steps:
                print("%f: Worker 0: training step %d done (global step: %d)" % (time.time(), step, step), flush=True)
        print("Worker 0: test accuracy %.4f" % sess.run(accuracy, feed_dict={xs: mnist.test.images, ys: mnist.test.labels}))
        sess.run(stop)


if __name__ == "__main__":
    tf.app.run()
