#!/usr/bin/env python3
"""Kills and stops processes of a real training job and looks at what the others do: kill_test.py --millrace=M --program=P --data_dir=D [TESTS...].

The job is examples/mnist_replica on 1 ps and 2 workers under `millrace launch`. After each fault the training must go on, or the job must end with a line that
names what happened; either within ten seconds, with no process left, and with a checkpoint that can be read.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import job as jobs

FLAGS = None
WITHIN = 10  # seconds from a fault to its consequence
DETECTOR = 5  # after so long a silent process is given up (--peer_timeout and --lost_after)


class Faults(unittest.TestCase):
    def start(self, *launch_flags, program_flags=(), steps=200000):
        folder = tempfile.TemporaryDirectory(prefix="millrace_kill_")
        self.addCleanup(folder.cleanup)
        self.log_dir = folder.name
        job = jobs.Job([FLAGS.millrace, "launch", "--ps", "1", "--workers", "2", *launch_flags, "--", FLAGS.program, "--data_dir=" + FLAGS.data_dir,
                        "--log_dir=" + self.log_dir, "--train_steps=%d" % steps, "--save_checkpoint_secs=1", *program_flags], marker=self.log_dir)
        self.addCleanup(job.clean_up)
        return job

    def train_a_while(self, job):
        """Until there is a checkpoint, and then a little longer, so that the fault comes anywhere."""
        job.wait_for(r"\[worker/1\].*step \d+", 60)
        end = time.monotonic() + 30
        while not os.path.exists(os.path.join(self.log_dir, "checkpoint")):
            self.assertLess(time.monotonic(), end, "no checkpoint was written; the job said:\n" + job.text())
            time.sleep(0.05)
        time.sleep(random.uniform(0, 1.5))

    def assert_restorable(self):
        result = subprocess.run([FLAGS.millrace, "checkpoint", "--verify", self.log_dir], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("global_step", result.stdout)

    def assert_gone(self, job):
        left = job.left_after(WITHIN)
        self.assertEqual(left, [], "processes left; the job said:\n" + job.text())

    def steps_of(self, job, name):
        return [line for _, line in job.lines if line.startswith("[%s]" % name) and " step " in line]

    def ends_with(self, fault, name, what, code):
        """Without restarts the job ends at once and says why in one line."""
        job = self.start("--restart", "ps=never", "--restart", "worker=never")
        self.train_a_while(job)
        os.kill(job.task(name), fault)
        limit = WITHIN if fault == signal.SIGKILL else WITHIN + DETECTOR
        self.assertEqual(job.end(limit), code, job.text())
        self.assertRegex(job.text(), r"millrace: %s %s.*at step \d+.*; the others stopped because of it" % (name, what))
        self.assert_gone(job)
        self.assert_restorable()

    def goes_on(self, fault, name, *program_flags):
        """With restarts the task comes back and the training makes steps again."""
        job = self.start("--restart", "ps=on-failure:3", "--restart", "worker=on-failure:3", program_flags=program_flags)
        self.train_a_while(job)
        said = len(job.lines)
        os.kill(job.task(name), fault)
        limit = WITHIN if fault == signal.SIGKILL else WITHIN + DETECTOR
        job.wait_for(r"millrace: %s .*restart" % name, limit, after=said)
        # Both workers make steps again, the one that came back too.
        said = len(job.lines)
        for worker in ("worker/0", "worker/1"):
            job.wait_for(r"\[%s\].*step \d+" % worker, limit + WITHIN, after=said)
        self.assert_restorable()
        os.kill(job.process.pid, signal.SIGINT)
        self.assertEqual(job.end(WITHIN), 130, job.text())
        self.assert_gone(job)

    def test_killed_worker_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "worker/1", "was killed by SIGKILL", 137)

    def test_killed_chief_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "worker/0", "was killed by SIGKILL", 137)

    def test_killed_ps_ends_the_job(self):
        self.ends_with(signal.SIGKILL, "ps/0", "was killed by SIGKILL", 137)

    def test_killed_worker_comes_back(self):
        self.goes_on(signal.SIGKILL, "worker/1")

    def test_killed_chief_comes_back(self):
        self.goes_on(signal.SIGKILL, "worker/0")

    def test_killed_ps_comes_back(self):
        self.goes_on(signal.SIGKILL, "ps/0")

    def test_stopped_worker_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "worker/1", "was suspended by SIGSTOP", 137)

    def test_stopped_chief_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "worker/0", "was suspended by SIGSTOP", 137)

    def test_stopped_ps_ends_the_job(self):
        self.ends_with(signal.SIGSTOP, "ps/0", "was suspended by SIGSTOP", 137)

    def test_stopped_worker_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "worker/1")

    def test_stopped_chief_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "worker/0")

    def test_stopped_ps_is_replaced(self):
        self.goes_on(signal.SIGSTOP, "ps/0")

    def test_killed_worker_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "worker/1", "--sync_replicas")

    def test_killed_chief_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "worker/0", "--sync_replicas")

    def test_killed_ps_comes_back_in_step(self):
        self.goes_on(signal.SIGKILL, "ps/0", "--sync_replicas")

    def test_killed_launcher_leaves_nothing(self):
        job = self.start()
        self.train_a_while(job)
        os.kill(job.process.pid, signal.SIGKILL)
        self.assert_gone(job)
        self.assert_restorable()

    def test_stopped_launcher_goes_on_where_it_was(self):
        job = self.start()
        self.train_a_while(job)
        os.kill(job.process.pid, signal.SIGSTOP)
        time.sleep(DETECTOR + 2)
        said = len(job.lines)
        os.kill(job.process.pid, signal.SIGCONT)
        job.wait_for(r"\[worker/1\].*step \d+", WITHIN, after=said)
        self.assertIsNone(job.process.poll(), job.text())
        os.kill(job.process.pid, signal.SIGINT)
        self.assertEqual(job.end(WITHIN), 130, job.text())
        self.assert_gone(job)


class AtOnce(unittest.TextTestResult):
    """Shows a failure when it happens: a soak takes long."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])


def main():
    global FLAGS
    parser = argparse.ArgumentParser()
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--times", type=int, default=1, help="run every test so often")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("tests", nargs="*")
    FLAGS = parser.parse_args()
    random.seed(FLAGS.seed)
    print("seed %d" % FLAGS.seed, flush=True)
    names = FLAGS.tests or unittest.defaultTestLoader.getTestCaseNames(Faults)
    suite = unittest.TestSuite(Faults(name) for name in names for _ in range(FLAGS.times))
    return not unittest.TextTestRunner(verbosity=2, resultclass=AtOnce).run(suite).wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
