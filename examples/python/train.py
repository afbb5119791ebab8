"""A ps/worker program of TensorFlow 1's kind, asynchronous, with a Supervisor:

    millrace launch --insecure --ps 1 --workers 2 -- python train.py FOLDER

The servers are Millrace's: the import of millrace.tensorflow makes them so. Checkpoints go to FOLDER.
"""

import json
import os
import sys

import millrace.tensorflow  # noqa: F401
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=job, task_index=index)
assert isinstance(server, millrace.tensorflow.Server), server
assert server.server_def.job_name == job
if job == "ps":
    server.join()

with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster)):
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)

data = np.random.RandomState(index)
supervisor = tf.train.Supervisor(is_chief=index == 0, logdir=sys.argv[1], global_step=step, recovery_wait_secs=1, save_summaries_secs=0)
# A worker waits for the ps only, not for the other worker, which may have ended.
config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % index])
with supervisor.prepare_or_wait_for_session(server.target, config=config) as session:
    for _ in range(300):
        examples = data.rand(32, 2).astype(np.float32)
        value = session.run([train, loss], {x: examples, y: examples @ np.float32([[3], [-2]])})[1]
    if index == 0:
        supervisor.saver.save(session, os.path.join(sys.argv[1], "model.ckpt"), global_step=step)
print("the last loss of worker %d is below 0.01: %s" % (index, value < 0.01))
