#!/usr/bin/env python3
"""Estimators of TensorFlow 2.15 train on Millrace's servers: on those that run already ("environment": "google"), and on those that they start themselves
under `millrace launch --python`.

    estimator_test.py MILLRACE DATA
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "../../examples/python/mnist_estimator.py")
MILLRACE = DATA = None
# A client of the cluster that it is not part of is told to be the chief or the worker of it.
CLIENT = """
import json, os, runpy, sys
config = json.loads(os.environ["TF_CONFIG"])
config.update(environment="google", task={"type": ["chief", "worker"][config["task"]["index"]], "index": 0})
os.environ["TF_CONFIG"] = json.dumps(config)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class EstimatorTest(unittest.TestCase):
    def train(self, options, program):
        with tempfile.TemporaryDirectory() as folder:
            words = [MILLRACE, "launch", "--ps", "1", "--job", "chief=1", "--workers", "1", *options, "--", sys.executable, "-B", *program,
                     "--data_dir=" + DATA, "--model_dir=" + folder, "--train_steps=1500"]
            job = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
            output = job.stdout
            self.assertEqual(job.returncode, 0, output[-8000:])
            self.assertNotIn("Started server with target", output)
            accuracy, step = re.search(r"Test accuracy ([0-9.]+) at step (\d+)", output).groups()
            self.assertGreaterEqual(float(accuracy), 0.9)
            self.assertGreaterEqual(int(step), 1500)
            self.assertTrue(os.path.exists(os.path.join(folder, "checkpoint")))
            print("accuracy", accuracy, "at step", step, flush=True)

    def test_on_servers_that_are_there(self):
        serve = [word for job in ("ps", "chief", "worker") for word in ("--serve", job, "--service_job", job)]
        self.train(["--insecure", *serve, "--side_job", "client=2"], ["-c", CLIENT, SCRIPT])

    def test_on_servers_that_they_start(self):
        self.train(["--python"], [SCRIPT])


if __name__ == "__main__":
    MILLRACE, DATA = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
