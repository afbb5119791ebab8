"""MNIST with parameter servers, synchronous: each step applies the mean of the gradients of all workers (SyncReplicasOptimizer).

    millrace launch --python --ps 1 --workers 2 -- mnist_sync.py                # Millrace's servers
    millrace launch --ps 1 --workers 2 -- python mnist_sync.py                  # TensorFlow's
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
flags.DEFINE_integer("train_steps", 1500, "Global steps of the training")
flags.DEFINE_integer("batch_size", 100, "Images of each worker in a step")
flags.DEFINE_float("learning_rate", 0.5, "Of gradient descent")
FLAGS = flags.FLAGS


def main(_):
    workers = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = FLAGS.task_index == 0
    mnist = input_data.read_data_sets(FLAGS.data_dir, seed=FLAGS.task_index)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d/cpu:0" % FLAGS.task_index, cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(tf.truncated_normal([784, FLAGS.hidden_units], stddev=1.0 / 28), name="hid_w")
        hid_b = tf.Variable(tf.zeros([FLAGS.hidden_units]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([FLAGS.hidden_units, 10], stddev=1.0 / math.sqrt(FLAGS.hidden_units)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
        x = tf.placeholder(tf.float32, [None, 784])
        y_ = tf.placeholder(tf.float32, [None, 10])
        logits = tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b)), sm_w, sm_b)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y_, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(y_, 1)), tf.float32))
        opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(FLAGS.learning_rate), replicas_to_aggregate=len(workers),
                                             total_num_replicas=len(workers))
        train_step = opt.minimize(loss, global_step=global_step)
        local_init_op = opt.chief_init_op if is_chief else opt.local_step_init_op
        chief_queue_runner = opt.get_chief_queue_runner()
        sync_init_op = opt.get_init_tokens_op()
        init_op = tf.global_variables_initializer()

    sv = tf.train.Supervisor(is_chief=is_chief, init_op=init_op, local_init_op=local_init_op, ready_for_local_init_op=opt.ready_for_local_init_op,
                             recovery_wait_secs=1, global_step=global_step, summary_op=None)
    config = tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    sess = sv.prepare_or_wait_for_session(server.target, config=config)
    if is_chief:
        sess.run(sync_init_op)
        sv.start_queue_runners(sess, [chief_queue_runner])

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
