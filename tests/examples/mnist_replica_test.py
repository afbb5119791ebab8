#!/usr/bin/env python3
"""examples/mnist_replica as people run it: one process for each task, by flags or TF_CONFIG, in all its modes.

    mnist_replica_test.py build/release/examples/mnist_replica --serve build/release/bin/millrace --data_dir examples/data/mnist [test names]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from run_cluster import Task, free_addresses

ARGS = None


class Cluster(unittest.TestCase):
    def setUp(self):
        self.tasks = []
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def tearDown(self):
        result = self._outcome.result
        failed = any(test is self for test, _ in result.failures + result.errors) or any(error for _, error in getattr(self._outcome, "errors", []))
        for task in self.tasks:
            task.stop()
            if failed:
                print("--- %s\n%s" % (task.name, "\n".join(line for line in task.lines if line is not None)), file=sys.stderr)

    def addresses(self, workers):
        self.ps, *self.workers = free_addresses(1 + workers)

    def start(self, job, index, *flags, by_environment=False, wait=True):
        command, env = [ARGS.program, "--data_dir=" + ARGS.data_dir, *flags], None
        if by_environment:
            env = {"TF_CONFIG": json.dumps({"cluster": {"ps": [self.ps], "worker": self.workers}, "task": {"type": job, "index": index}})}
        else:
            command += ["--ps_hosts=" + self.ps, "--worker_hosts=" + ",".join(self.workers), "--job_name=" + job, "--task_index=%d" % index]
        task = Task("%s %d" % (job, index), command, env)
        self.tasks.append(task)
        if wait:
            task.wait_for(" serves at ")
        return task

    def train(self, workers, *flags, **kwargs):
        """A whole training; what each worker ended with."""
        self.addresses(workers)
        ps = self.start("ps", 0, *flags, **kwargs)
        started = [self.start("worker", i, *flags, **kwargs) for i in reversed(range(workers))]
        for worker in started:
            self.check(worker)
        self.assertIsNone(ps.process.poll(), "the ps ended by itself")
        ps.process.send_signal(signal.SIGTERM)
        ps.finish(15)
        return started

    def check(self, worker):
        accuracy = float(worker.wait_for(r"Test accuracy ([0-9.]+) %", 150).group(1))
        worker.finish()
        print("%s: test accuracy %.2f %%" % (worker.name, accuracy))
        self.assertGreaterEqual(accuracy, 90)


class MnistReplicaTest(Cluster):
    def test_asynchronous(self):
        self.train(2)

    def test_synchronous_by_tf_config(self):
        self.train(2, "--sync_replicas", by_environment=True)

    def test_synchronous_with_a_backup_worker(self):
        self.train(3, "--sync_replicas", "--replicas_to_aggregate=2")

    def test_fixed_order_gives_the_same_weights_on_any_number_of_workers(self):
        def weights(workers, *flags):
            tasks = self.train(workers, "--sync_replicas", "--shards=4", "--batch_size=25", *flags)
            (checksum,) = {task.wait_for(r"Weights have checksum ([0-9a-f]{16})").group(1) for task in tasks}
            return checksum

        alone = weights(1, "--train_steps=150")
        self.assertEqual(weights(4, "--train_steps=150"), alone)
        # Three workers, and two that continue what they had.
        log = "--log_dir=" + self.folder
        self.assertNotEqual(weights(3, "--train_steps=100", log), alone)
        self.assertEqual(weights(2, "--train_steps=150", log), alone)

    def test_bounded_staleness(self):
        self.train(2, "--staleness=1")

    def test_existing_servers(self):
        self.addresses(2)
        hosts = ["--ps_hosts=" + self.ps, "--worker_hosts=" + ",".join(self.workers)]
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
            server = Task("server of %s %d" % (job, index), [ARGS.serve, "serve", *hosts, "--job_name=" + job, "--task_index=%d" % index])
            self.tasks.append(server)
            server.wait_for(" serves at ")
        for client in [self.start("worker", i, "--existing_servers", "--sync_replicas", wait=False) for i in range(2)]:
            self.check(client)

    def test_a_log_dir_has_checkpoints_and_events_and_a_second_training_goes_on_from_them(self):
        self.train(2, "--log_dir=" + self.folder, "--train_steps=400", "--profile_steps=50:52")
        files = os.listdir(self.folder)
        with open(os.path.join(self.folder, "timeline.json")) as timeline:
            self.assertTrue(json.load(timeline))
        self.assertIn("checkpoint", files)
        self.assertTrue(any(name.startswith("events.out.tfevents.") for name in files), files)
        again = self.train(2, "--log_dir=" + self.folder, "--train_steps=460")
        steps = [int(task.wait_for(r"global step (\d+)").group(1)) for task in again]
        self.assertGreaterEqual(min(steps), 400)

    def test_a_worker_that_is_killed_in_a_synchronous_training_is_replaced(self):
        flags = ["--sync_replicas", "--train_steps=1200"]
        self.addresses(2)
        self.start("ps", 0, *flags)
        chief, victim = (self.start("worker", i, *flags) for i in range(2))
        victim.wait_for(r"Worker 1: step 50 done")
        victim.process.kill()
        victim.process.wait()
        again = self.start("worker", 1, *flags)
        again.wait_for(r"Worker 1: step 50 done", 60)
        for worker in (chief, again):
            self.check(worker)

    def test_a_worker_that_is_killed_in_fixed_order_changes_no_weight(self):
        flags = ["--sync_replicas", "--shards=4", "--batch_size=10", "--train_steps=600"]
        checksum = lambda task: task.wait_for(r"Weights have checksum ([0-9a-f]{16})", 60).group(1)
        (alone,) = {checksum(task) for task in self.train(1, *flags)}
        self.addresses(2)
        self.start("ps", 0, *flags)
        chief, victim = (self.start("worker", i, *flags) for i in range(2))
        victim.wait_for(r"Worker 1: step 50 done")
        victim.process.kill()
        victim.process.wait()
        again = self.start("worker", 1, *flags)
        for worker in (chief, again):
            self.check(worker)
            self.assertEqual(checksum(worker), alone, worker.name)

    def test_a_chief_that_is_killed_in_a_synchronous_training_is_replaced(self):
        flags = ["--sync_replicas", "--train_steps=1200"]
        self.addresses(2)
        self.start("ps", 0, *flags)
        victim, other = (self.start("worker", i, *flags) for i in range(2))
        victim.wait_for(r"Worker 0: step 50 done")
        victim.process.kill()
        victim.process.wait()
        again = self.start("worker", 0, *flags)
        for worker in (again, other):
            self.check(worker)

    def test_misuse_is_told(self):
        def error(*flags, status=1, **env):
            environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
            result = subprocess.run([ARGS.program, *flags], capture_output=True, text=True, timeout=30, env=dict(environment, **env))
            self.assertEqual(result.returncode, status, flags)
            return result.stderr + result.stdout

        self.assertIn("which task is this? Give --job_name and --task_index, or TF_CONFIG", error())
        self.assertIn("TF_CONFIG: '{' is not JSON", error(TF_CONFIG="{"))
        self.assertIn("there is no parameter server", error(TF_CONFIG='{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'))
        self.assertIn("give --task_index: which worker is this?", error("--job_name=worker"))
        self.assertIn("--job_name", error("--job_name=boss", status=2))
        self.assertIn("--no_such_flag", error("--no_such_flag", status=2))
        self.assertIn("job 'worker' has no task 7", error("--job_name=worker", "--task_index=7"))
        self.assertIn("--replicas_to_aggregate needs --sync_replicas", error("--job_name=ps", "--task_index=0", "--replicas_to_aggregate=2"))
        self.assertIn("--shards needs --sync_replicas", error("--job_name=ps", "--task_index=0", "--shards=8"))
        self.assertIn("leave out --replicas_to_aggregate", error("--job_name=ps", "--task_index=0", "--sync_replicas", "--shards=8", "--replicas_to_aggregate=1"))
        self.assertIn("leave out --sync_replicas or --staleness", error("--job_name=ps", "--task_index=0", "--sync_replicas", "--staleness=1"))
        self.assertIn("batch_size", error("--job_name=ps", "--task_index=0", "--batch_size=0", status=2))
        self.assertIn("--profile_steps needs --log_dir", error("--job_name=ps", "--task_index=0", "--profile_steps=10"))
        ps, worker = free_addresses(2)
        hosts = ["--ps_hosts=" + ps, "--worker_hosts=" + worker]
        self.assertIn("/nonexistent/mnist", error(*hosts, "--job_name=worker", "--task_index=0", "--data_dir=/nonexistent/mnist"))


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--serve", required=True)
    parser.add_argument("--data_dir", required=True)
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
