"""kill_test.py MILLRACE PROGRAM DATA_DIR: a cluster that trains, and each of its processes killed and suspended.

PROGRAM takes --ps_hosts and its kin and says its steps. Each fault is made LAUNCH_KILL_ROUNDS times (2).
"""

import os
import re
import signal
import sys
import time
import unittest

import jobs
from jobs import LaunchTest

PROGRAM, DATA = "", ""
ROUNDS = int(os.environ.get("LAUNCH_KILL_ROUNDS", "2"))
# From the fault to the end of the launcher.
LIMIT = 10


class KillTest(LaunchTest):
    def training(self, *words):
        job = self.launch("--ps", "1", "--workers", "2", "--host_flags", *words, "--", PROGRAM, "--train_steps=1000000", "--data_dir=" + DATA)
        for worker in ("worker/0", "worker/1"):
            job.wait_for("[%s] step " % worker, 60)
        return job

    def fault(self, task, number, code, message):
        for _ in range(ROUNDS):
            job = self.training()
            os.kill(job.tasks()[task], number)
            start = time.monotonic()
            self.assertEqual(job.end(LIMIT + 20), code, job.stderr)
            self.assertLess(time.monotonic() - start, LIMIT)
            self.assertRegex(job.stderr.splitlines()[-1], "^millrace: %s; the others stopped because of it$" % message)
            self.assertEqual(self.left(0), {})

    def test_kill_of_a_worker(self):
        self.fault("worker/1", signal.SIGKILL, 137, r"worker/1 was killed by SIGKILL at step \d+")

    def test_kill_of_the_chief(self):
        self.fault("worker/0", signal.SIGKILL, 137, r"worker/0 was killed by SIGKILL at step \d+")

    def test_kill_of_a_ps(self):
        self.fault("ps/0", signal.SIGKILL, 137, r"ps/0 was killed by SIGKILL at step \d+")

    def test_suspension_of_a_worker(self):
        self.fault("worker/1", signal.SIGSTOP, 137, r"worker/1 was suspended by SIGSTOP at step \d+ .*")

    def test_suspension_of_the_chief(self):
        self.fault("worker/0", signal.SIGSTOP, 137, r"worker/0 was suspended by SIGSTOP at step \d+ .*")

    def test_suspension_of_a_ps(self):
        # The workers notice first, and give up.
        self.fault("ps/0", signal.SIGSTOP, 1, r"ps/0 was suspended by SIGSTOP at step \d+ .* ago, and worker/\d exited with code 1 .*has not answered.*")

    def test_kill_of_the_launcher(self):
        for _ in range(ROUNDS):
            job = self.training()
            job.process.kill()
            job.process.wait()
            self.assertEqual(self.left(LIMIT), {})

    def test_suspension_of_the_launcher_changes_nothing(self):
        job = self.training()
        job.process.send_signal(signal.SIGSTOP)
        self.until(lambda: jobs.state_of(job.pid) == "T")
        time.sleep(1)
        job.process.send_signal(signal.SIGCONT)
        last = max(map(int, re.findall(r"step (\d+)", job.stdout)))
        self.until(lambda: job.read() and max(map(int, re.findall(r"step (\d+)", job.stdout))) > last + 100)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end(15), 130)


if __name__ == "__main__":
    jobs.MILLRACE, PROGRAM, DATA = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
