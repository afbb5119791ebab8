#!/usr/bin/env python3
"""A training that is preempted and started again ends with the weights, byte for byte, of one that never was: weights_test.py MILLRACE MNIST_REPLICA MNIST_FOLDER."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import job as jobs

MILLRACE = PROGRAM = DATA = ""
STEPS = 2000


class WeightsTest(unittest.TestCase):
    def start(self, folder, workers=2):
        job = jobs.Job([MILLRACE, "launch", "--ps", "1", "--workers", str(workers), "--grace", "60", "--", PROGRAM, "--data_dir=" + DATA, "--sync_replicas", "--shards=4",
                        "--batch_size=20", "--train_steps=%d" % STEPS, "--save_checkpoint_secs=600", "--log_dir=" + folder], marker=folder)
        self.addCleanup(job.clean_up)
        return job

    def folder(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace_weights_")
        self.addCleanup(folder.cleanup)
        return folder.name

    def checksum(self, job):
        self.assertEqual(job.end(120), 0, job.text())
        found = set(re.findall(r"Weights have checksum (\w+)", job.text()))
        self.assertEqual(len(found), 1, job.text())
        return found.pop()

    def test_a_preempted_training_ends_with_the_weights_of_one_that_was_not(self):
        whole = self.checksum(self.start(self.folder()))
        folder, at = self.folder(), 0
        # To the launcher, then to the chief, then to the ps; the last part on another number of workers.
        for whom in ("launcher", "worker/0", "ps/0"):
            job = self.start(folder)
            job.wait_for(r"\(global step \d+\)", 60)
            os.kill(job.process.pid if whom == "launcher" else job.task(whom), signal.SIGTERM)
            self.assertEqual(job.end(60), 143, job.text())
            told = re.search(r"stopped by SIGTERM at step (\d+); model\.ckpt-\1 is whole$", job.text())
            self.assertIsNotNone(told, job.text())
            self.assertGreater(int(told.group(1)), at, job.text())
            at = int(told.group(1))
        self.assertLess(at, STEPS, "it was not preempted in the middle")
        self.assertEqual(self.checksum(self.start(folder, workers=1)), whole)

    def test_without_a_launcher_a_scheduler_that_tells_all_processes_gets_a_whole_checkpoint(self):
        folder = self.folder()
        held = [socket.socket() for _ in range(3)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        hosts = ["localhost:%d" % each.getsockname()[1] for each in held]
        cluster = {"ps": hosts[:1], "worker": hosts[1:]}
        processes = []
        for each in held:
            each.close()
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
            env = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}), "MILLRACE_GRACE": "60"}
            log = open(os.path.join(folder, "%s%d.log" % (job, index)), "w+")
            self.addCleanup(log.close)
            process = subprocess.Popen([PROGRAM, "--data_dir=" + DATA, "--sync_replicas", "--shards=4", "--train_steps=100000000", "--save_checkpoint_secs=600", "--log_dir=" + folder],
                                       stdout=log, stderr=subprocess.STDOUT, env=env)
            self.addCleanup(lambda process=process: (process.kill(), process.wait()))
            processes.append((process, log))

        def text(log):
            log.seek(0)
            return log.read()
        end = time.monotonic() + 60
        while not all("(global step" in text(log) for _, log in processes[1:]):
            self.assertLess(time.monotonic(), end, "\n".join(text(log) for _, log in processes))
            time.sleep(0.05)
        for process, _ in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(60) for process, _ in processes]
        said = "\n".join(text(log) for _, log in processes)
        # The ps has ended well; the workers are to be started again.
        self.assertEqual(codes, [0, 143, 143], said)
        told = re.search(r"stopped by SIGTERM at step (\d+); model\.ckpt-\1 is whole", said)
        self.assertIsNotNone(told, said)
        checked = subprocess.run([MILLRACE, "checkpoint", "--verify", folder], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)


if __name__ == "__main__":
    MILLRACE, PROGRAM, DATA = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
