#!/usr/bin/env python3
"""Host names that appear late and that return with another address, as those of pods do: names_test.py MNIST_REPLICA MILLRACE MNIST_FOLDER."""

import json
import os
import sys
import tempfile
import unittest

import machines

PROGRAM = MILLRACE = DATA = ""
PORT = 2222
NAMES = {"ps": "train-ps-0.train.test", "worker": "train-worker-0.train.test"}
# A task that has been silent for 5 s is lost; then gRPC and the sessions try again.
BACK = 60


class NamesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace_names_")
        self.addCleanup(folder.cleanup)
        self.network = machines.Network(3)
        self.addCleanup(self.network.close)
        self.folder = folder.name
        os.chmod(self.folder, 0o755)
        self.hosts = os.path.join(self.folder, "hosts")
        self.name({})
        for machine in self.network.machines:
            machine.use_hosts(self.hosts)
        self.use(PORT, "auto")

    def use(self, port, transport):
        self.cluster = {job: ["%s:%d" % (name, port)] for job, name in NAMES.items()}
        self.environment = {"MILLRACE_TRANSPORT": transport}

    def name(self, machine_of):
        """All machines now know these names, and no others."""
        with open(self.hosts, "w") as f:  # the same file, which is mounted in each of them
            f.write("127.0.0.1 localhost\n")
            for job, machine in machine_of.items():
                f.write("%s %s\n" % (self.network.machines[machine].address, NAMES[job]))

    def start(self, machine, job, *flags):
        config = {"cluster": self.cluster, "task": {"type": job, "index": 0}}
        environment = {"TF_CONFIG": json.dumps(config), "MILLRACE_INSECURE": "1", "MILLRACE_FILE_ROOT": self.folder, **self.environment}
        return self.network.machines[machine].start(PROGRAM, "--data_dir=" + DATA, *flags, environment=environment)

    def status(self, machine):
        asked = self.network.machines[machine].start(MILLRACE, "status", "--target", "grpc://127.0.0.1:%d" % PORT, "--timeout", "2")
        asked.end(30)
        return asked.text()

    def test_a_name_that_does_not_resolve_yet_is_waited_for_and_named(self):
        self.name({"worker": 1})
        worker = self.start(1, "worker", "--train_steps=50")
        worker.wait_for("serves at", 30)
        worker.wait_for(NAMES["ps"], 60)
        self.assertIn(NAMES["ps"], self.status(1))
        self.name({"worker": 1, "ps": 0})
        self.start(0, "ps")
        self.assertEqual(worker.end(BACK), 0, worker.text())

    def test_a_ps_that_returns_with_another_address_is_found_again_over_the_lane_and_over_grpc(self):
        self.name({"worker": 1, "ps": 0})
        clusters = {PORT: "tcp", PORT + 1: "grpc"}  # at once, because it takes a while until a machine counts as gone
        workers = []
        for port, transport in clusters.items():
            self.use(port, transport)
            self.start(0, "ps")
            workers.append(self.start(1, "worker", "--train_steps=100000000", "--log_dir=%s/%s" % (self.folder, transport), "--save_checkpoint_secs=1"))
        for worker in workers:
            worker.wait_for("(global step", 30)
        self.network.machines[0].start("sh", "-c", "kill -9 -1").end(30)  # all that runs there
        self.network.machines[0].cut()
        self.name({"worker": 1, "ps": 2})
        for port, transport in clusters.items():
            self.use(port, transport)
            self.start(2, "ps")
        for worker in workers:
            worker.wait_for("training resumes at step", BACK)
            worker.wait_for("(global step", BACK, after=len(worker.text()))


def main():
    global PROGRAM, MILLRACE, DATA
    machines.enter_own_user_namespace()
    why = machines.why_not()
    if why:
        print("names_test: left out: " + why)
        return 0
    PROGRAM, MILLRACE, DATA = map(os.path.abspath, sys.argv[1:4])
    return not unittest.main(argv=[sys.argv[0], *sys.argv[4:]], exit=False).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
