#!/usr/bin/env python3
"""The scripts of examples/python under `millrace launch --python`: unchanged programs of TensorFlow's kind learn on Millrace's servers.

    examples_test.py MILLRACE DATA
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "../../examples/python")
MILLRACE = DATA = None


class Job:
    """A job that has been started, in the background."""

    def __init__(self, script, *flags, options=()):
        self.words = [MILLRACE, "launch", "--python", "--ps", "1", "--workers", "2", *options, "--", sys.executable, "-B",
                      os.path.join(EXAMPLES, script), "--data_dir=" + DATA, *flags]
        # TensorFlow's server says in its log that it has started; Millrace's has no such line.
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"})


class ExamplesTest(unittest.TestCase):
    def check(self, job, workers, least):
        try:
            output = job.process.communicate(timeout=240)[0]
        except subprocess.TimeoutExpired:
            job.process.terminate()
            output = job.process.communicate()[0]
        self.assertEqual(job.process.returncode, 0, output)
        self.assertNotIn("Started server with target", output)
        found = {int(worker): float(accuracy) for worker, accuracy in re.findall(r"Worker (\d): test accuracy ([0-9.]+)", output)}
        self.assertEqual(sorted(found), workers, output)
        self.assertGreaterEqual(min(found.values()), least, output)

    def test_unchanged_scripts_learn(self):
        with tempfile.TemporaryDirectory() as folder:
            # A worker of it may wait for half a minute, during which the others run.
            monitored = Job("mnist_monitored.py", "--train_steps=600", "--train_dir=" + folder)
            try:
                with self.subTest("in-graph replication, one client"):
                    self.check(Job("mnist_in_graph.py", "--train_steps=300"), [0], 0.91)
                with self.subTest("Supervisor, with TensorFlow's flags"):
                    self.check(Job("mnist_supervisor.py", "--train_steps=600", options=["--host_flags"]), [0, 1], 0.91)
                with self.subTest("SyncReplicasOptimizer, the ps without Python"):
                    self.check(Job("mnist_sync.py", "--train_steps=300", options=["--serve", "ps"]), [0, 1], 0.91)
            finally:
                with self.subTest("MonitoredTrainingSession"):
                    self.check(monitored, [0, 1], 0.91)
            self.assertTrue(os.path.exists(os.path.join(folder, "checkpoint")))


if __name__ == "__main__":
    MILLRACE, DATA = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
