#!/usr/bin/env python3
"""A training on three machines, each with an address of its own, whose network fails: machines_test.py MNIST_REPLICA MNIST_STRATEGY MNIST_FOLDER."""

import json
import os
import re
import sys
import tempfile
import time
import unittest

import machines

PROGRAM = STRATEGY = DATA = ""
PORT = 2222
# A task that has been silent for 5 s is lost; what waits for it then fails.
NOTICED = 10


class MachinesTest(unittest.TestCase):
    def setUp(self):
        self.network = machines.Network(3)
        self.addCleanup(self.network.close)
        folder = tempfile.TemporaryDirectory(prefix="millrace_machines_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        ps, *workers = (machine.address for machine in self.network.machines)
        self.cluster = {"ps": ["%s:%d" % (ps, PORT)], "worker": ["%s:%d" % (worker, PORT) for worker in workers]}

    def start(self, machine, job, index, *words):
        """One task, as a user starts it by hand on its machine."""
        config = {"cluster": self.cluster, "task": {"type": job, "index": index}}
        return self.network.machines[machine].start(*words, environment={"TF_CONFIG": json.dumps(config), "MILLRACE_INSECURE": "1"})

    def start_all(self, *flags):
        program = [PROGRAM, "--data_dir=" + DATA]
        self.ps = self.start(0, "ps", 0, *program)
        return [self.start(1 + index, "worker", index, *program, *flags) for index in (0, 1)]

    def test_three_machines_train(self):
        workers = self.start_all("--sync_replicas", "--train_steps=300")
        for worker in workers:
            self.assertEqual(worker.end(60), 0, worker.text())
            self.assertRegex(worker.text(), r"Test accuracy [89]\d\.")
        self.assertRegex(self.ps.text(), re.escape(self.cluster["ps"][0]))

    def test_a_machine_that_is_cut_off_is_named_by_those_who_wait_for_it(self):
        workers = self.start_all("--train_steps=100000000")
        for worker in workers:
            worker.wait_for("(global step", 20)
        self.network.machines[0].cut()  # the ps
        for worker in workers:
            worker.wait_for("/job:ps/replica:0/task:0", NOTICED)

    def test_the_others_go_on_without_a_worker_that_is_cut_off(self):
        first, second = self.start_all("--train_steps=100000000")
        for worker in (first, second):
            worker.wait_for("(global step", 20)
        self.network.machines[2].cut()
        second.wait_for("/job:ps/replica:0/task:0", NOTICED)
        said = first.text()
        first.wait_for("(global step", NOTICED, after=len(said))

    def test_workers_without_a_ps_name_the_one_that_is_cut_off(self):
        self.cluster = {"worker": ["%s:%d" % (machine.address, PORT) for machine in self.network.machines]}
        workers = [self.start(index, "worker", index, STRATEGY, DATA, "1000000000") for index in range(3)]
        for worker in workers:
            worker.wait_for("training begins", 20)
        self.network.machines[2].cut()
        for worker in workers[:2]:
            self.assertEqual(worker.end(2 * NOTICED), 1, worker.text())
            self.assertIn("/job:worker/replica:0/task:2", worker.text())

    def test_localhost_needs_no_name_server(self):
        self.network.machines[0].forget_names()
        self.cluster = {"ps": ["localhost:%d" % PORT], "worker": ["localhost:%d" % (PORT + 1)]}
        program = [PROGRAM, "--data_dir=" + DATA, "--train_steps=100"]
        self.start(0, "ps", 0, *program)
        worker = self.start(0, "worker", 0, *program)
        self.assertEqual(worker.end(60), 0, worker.text())

    def test_a_short_cut_is_survived(self):
        workers = self.start_all("--sync_replicas", "--train_steps=3000")
        for worker in workers:
            worker.wait_for("(global step", 20)
        self.network.machines[1].cut()
        time.sleep(1)  # how long the cable is out, which is what is tested
        self.network.machines[1].mend()
        for worker in workers:
            self.assertEqual(worker.end(60), 0, worker.text())


def main():
    global PROGRAM, STRATEGY, DATA
    machines.enter_own_user_namespace()
    PROGRAM, STRATEGY, DATA = (os.path.abspath(path) for path in sys.argv[1:4])
    reason = machines.why_not()
    if reason is not None:
        print("skipped:", reason)
        return
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)


if __name__ == "__main__":
    main()
