"""What carries the steps between the servers under test is what they were told: MILLRACE_TRANSPORT, or the best there is."""

import json
import os
import subprocess
import time

import pytest

import harness

WANTED = os.environ.get("MILLRACE_TRANSPORT") or "auto"


def _lanes(cluster):
    """(task, lane) of all that tasks call, as `millrace status` tells it."""
    out = subprocess.run([harness.server_cmd()[0], "status", "--json", "--target", cluster.target("worker", 0)], stdout=subprocess.PIPE, timeout=60, env=harness.clean_env())
    return [(task["task"], peer["lane"]) for task in json.loads(out.stdout)["tasks"] for peer in task["peers"] if peer["outgoing"]]


def test_steps_take_the_transport_that_was_asked_for(tf, ps1w2, config):
    if harness.server_is_stock() or not harness.server_cmd()[0].endswith("millrace"):
        pytest.skip("for Millrace's servers")
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=tf.ones([1000, 1000]), use_resource=True)
    with tf.device("/job:worker/task:0"):
        total = tf.reduce_sum(v)
    expected = {"auto": "shm"}.get(WANTED, WANTED)
    with tf.Session(ps1w2.target("worker", 0), config=config) as sess:
        sess.run(tf.global_variables_initializer())
        deadline = time.time() + 30
        while True:
            assert sess.run(total) == 1e6
            lanes = _lanes(ps1w2)
            if expected == "grpc" or ("/job:worker/replica:0/task:0", expected) in lanes or time.time() > deadline:
                break
        if expected == "grpc":
            assert all(lane == "grpc" for _, lane in lanes), lanes
        else:
            assert ("/job:worker/replica:0/task:0", expected) in lanes, lanes
            assert all(lane in (expected, "grpc") for _, lane in lanes), lanes
