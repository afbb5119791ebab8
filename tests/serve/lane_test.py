"""lane_test.py MILLRACE CLUSTER_PROBE: what a person sees of step lanes, and what is left of them."""

import json
import os
import re
import signal
import socket
import sys
import unittest

import processes
from processes import ServeTest

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
FORBIDDEN = (sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "without_memory_reads.py"))


def lines_of(path):
    with open(path) as f:
        return f.read().splitlines()


def lanes_of(pid):
    """Where the process listens for lanes: names of Unix sockets, and TCP ports, which are also those of gRPC."""
    inodes = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            link = os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except OSError:
            continue
        if link.startswith("socket:"):
            inodes.add(link[8:-1])
    sockets = [line.split() for line in lines_of("/proc/net/unix")]
    names = {words[7] for words in sockets if len(words) > 7 and words[6] in inodes and words[7].startswith("@millrace-lane-")}
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in lines_of(table)[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].split(":")[1], 16))
    return names, ports


class LaneTest(ServeTest):
    def status(self, server):
        return json.loads(self.millrace("status", "--json", "--target", server.target).stdout)["tasks"]

    def lane(self, worker):
        """That of the worker to the ps, after a step."""
        self.assertEqual(self.probe(worker, "multiply", PS, WORKER).stdout, "15\n")
        return next(p for p in self.status(worker)[0]["peers"] if p["outgoing"])

    def test_status_tells_what_carries_the_steps(self):
        for flags, wanted in (((), "shm"), (("--transport=shm",), "shm"), (("--transport=tcp",), "tcp")):
            with self.subTest(flags=flags):
                ps, worker = self.cluster(*flags)
                lane = self.lane(worker)
                self.assertEqual(lane["lane"], wanted)
                self.assertGreater(lane["calls"], 0)
                text = self.millrace("status", "--target", worker.target).stdout
                self.assertRegex(text, re.compile(r"^  peers +to localhost:%d +%s +" % (ps.port, wanted), re.M))
        ps, worker = self.cluster("--transport=grpc")
        self.assertEqual(self.probe(worker, "multiply", PS, WORKER).stdout, "15\n")
        self.assertEqual(self.status(worker)[0]["peers"], [])
        self.assertEqual(lanes_of(worker.process.pid), (set(), {worker.port}))

    def test_a_transport_that_there_is_not_is_refused(self):
        result = self.millrace("serve", "--cluster_spec=ps|localhost:0", "--job_name=ps", "--transport=pigeon")
        self.assertGreater(result.returncode, 0)
        self.assertIn("pigeon", result.stderr)
        for name in ("auto", "shm", "tcp", "grpc"):
            self.assertIn(name, result.stderr)
        result = self.millrace("serve", "--cluster_spec=ps|localhost:0", "--job_name=ps", env=processes.clean_environment(MILLRACE_TRANSPORT="pigeon"))
        self.assertGreater(result.returncode, 0)
        self.assertIn("MILLRACE_TRANSPORT", result.stderr)

    def test_strangers_are_refused_and_counted(self):
        for kind in ("shm", "tcp"):
            with self.subTest(kind=kind):
                ps, worker = self.cluster(*(("--transport=tcp",) if kind == "tcp" else ()))
                # After a step of a worker: the TCP port is opened when somebody asks for it.
                self.assertEqual(self.lane(worker)["lane"], kind)
                names, ports = lanes_of(ps.process.pid)
                if kind == "shm":
                    name, = names
                    family, address = socket.AF_UNIX, "\0" + name[1:]
                    self.assertEqual(ports, {ps.port})
                else:
                    port, = ports - {ps.port}
                    family, address = socket.AF_INET, ("127.0.0.1", port)
                for _ in range(2):
                    with socket.socket(family) as stranger:
                        stranger.settimeout(30)
                        stranger.connect(address)
                        stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\0" * 200)
                        try:
                            while stranger.recv(1000):
                                pass
                        except ConnectionResetError:
                            pass
                self.until(lambda: self.status(ps)[0]["refused_connections"] == 2)
                self.assertRegex(self.millrace("status", "--target", ps.target).stdout, re.compile(r"^  refused +2 connections that did not belong here$", re.M))
                self.assertEqual(ps.error_text().count("refused a connection to the step lane from"), 2)
                self.assertEqual(self.lane(worker)["lane"], kind)

    def test_where_memory_cannot_be_read_it_is_told_once_and_steps_run(self):
        ps, worker = self.cluster(before=FORBIDDEN)
        lane = self.lane(worker)
        self.assertEqual(lane["lane"], "shm")
        self.assertRegex(lane["why_not_better"], r"large messages go through the Unix socket: the system does not let process \d+'s memory be read: Operation not permitted")
        self.assertIn("large messages go through the Unix socket", self.millrace("status", "--target", worker.target).stdout)
        for _ in range(5):
            self.lane(worker)
        self.assertEqual(len(re.findall(r"the step lane to localhost:%d .*could be faster" % ps.port, worker.error_text())), 1, worker.error_text())

    def test_a_killed_task_leaves_nothing_and_its_port_serves_again(self):
        before = {folder: set(os.listdir(folder)) for folder in ("/dev/shm", self.folder)}
        ps, worker = self.cluster(env=processes.clean_environment(TMPDIR=self.folder))
        self.assertEqual(self.lane(worker)["lane"], "shm")
        names, _ = lanes_of(ps.process.pid)
        self.assertEqual(len(names), 1)
        ps.stop(signal.SIGKILL)
        for name in names:
            self.assertNotIn(name, "\n".join(lines_of("/proc/net/unix")))
        for folder, was in before.items():
            self.assertEqual(set(os.listdir(folder)) - was, set())
        self.serve(self.spec, "--job_name=ps", "--task_index=0")
        self.until(lambda: self.lane(worker)["lane"] == "shm")


if __name__ == "__main__":
    processes.MILLRACE, processes.PROBE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
