"""bench_net_test.py MILLRACE: `millrace bench-net` as a person uses it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

import processes
from processes import ServeTest, clean_environment

SMALL = ("--max_size=1MB", "--seconds=0.5")
SIZES = ["1 KB", "10 KB", "100 KB", "1 MB"]
WAYS = ("memcpy", "shared mapping", "process_vm_readv", "Unix socket", "TCP, loopback", "Millrace, gRPC")


def partners():
    """The pids of partner processes on this machine."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if f.read().split(b"\0")[1:2] == [b"bench-net-partner"]:
                    found.append(int(pid))
        except OSError:
            pass  # ended meanwhile
    return set(found)


class BenchNetTest(ServeTest):
    def setUp(self):
        super().setUp()
        self.before = partners()

    def tearDown(self):
        self.until(lambda: not partners() - self.before)

    def listen(self):
        process = subprocess.Popen([processes.MILLRACE, "bench-net", "--listen", "127.0.0.1:0", "--max_size=100KB"], stdout=subprocess.PIPE, env=clean_environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        line = process.stdout.readline().decode()
        address = re.match(r"millrace bench-net: listens at (127\.0\.0\.1:\d+); on the other host: millrace bench-net --peer \1$", line)
        self.assertTrue(address, line)
        return process, address.group(1)

    def rows(self, text):
        """The table's rows by title: cells."""
        table = text.split("\n\n")[1].splitlines()
        width = 18
        return {line[:width].strip(): re.split(r"  +", line[width:].strip()) for line in table}

    def test_two_processes_of_this_host(self):
        file = os.path.join(self.folder, "net.json")
        result = self.millrace("bench-net", *SMALL, "--json", file)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^GB/s of this host, \d+ cores? here\n\n")
        rows = self.rows(result.stdout)
        self.assertEqual(rows[""], ["trip", *SIZES])
        for way in WAYS:
            if rows[way][0].startswith("not permitted"):
                continue  # process_vm_readv within a container
            cells = rows[way] if way == "memcpy" else rows[way][1:]
            self.assertEqual(len(cells), 4, rows)
            for cell in cells:
                self.assertRegex(cell, r"^(< 1e-5|[\d.]*[1-9][\d.]*)$")  # however slow, never 0
            if way != "memcpy":
                self.assertRegex(rows[way][0], r"^[\d.]+ us$")
        for share in rows["of the fastest"]:
            self.assertRegex(share, r"^[\d.]+ %$")
        # All lines of the table end in the same column.
        table = result.stdout.split("\n\n")[1].splitlines()
        self.assertEqual({len(line) for line in table if "RDMA" not in line and "not permitted" not in line}, {len(table[0])})
        # One thing is said of RDMA, whatever this host has.
        self.assertEqual(len(rows["RDMA"]), 1)
        plot = result.stdout.split("\n\n")[2]
        for part in ("○ memcpy", "★ Millrace, shm", "✖ Millrace, gRPC", "┤", "·", "1 KB", "1 MB", "GB/s"):
            self.assertIn(part, plot)

        with open(file) as f:
            figures = json.load(f)
        self.assertEqual(figures["sizes"], [1000, 10000, 100000, 1000000])
        ways = {way["name"]: way for way in figures["ways"]}
        self.assertEqual([ways[name]["kind"] for name in ("memcpy", "unix_socket", "tcp", "millrace_shm", "millrace_grpc")], ["copy", "ceiling", "ceiling", "millrace", "millrace"])
        for name in ("memcpy", "shared_mapping", "unix_socket", "tcp", "millrace_shm", "millrace_tcp", "millrace_grpc"):
            self.assertTrue(all(0 < speed for speed in ways[name]["gigabytes_per_second"]), ways[name])
        self.assertGreater(max(ways["millrace_grpc"]["share_of_ceiling"]), 0)

    def test_a_pair_of_hosts(self):
        listener, address = self.listen()
        for _ in range(2):
            result = self.millrace("bench-net", "--peer", address, "--seconds=0.3", "--ascii")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r"^GB/s of this host and \S+ at %s, \d+ cores? here\n\n" % address)
            self.assertTrue(result.stdout.isascii())
            rows = self.rows(result.stdout)
            # No more than the other side allows, which is said; and no memory is shared between hosts.
            self.assertEqual(rows[""], ["trip", *SIZES[:3]])
            self.assertIn("100 KB, less than --max_size", result.stderr)
            self.assertEqual(len(rows["TCP"]), 4)
            self.assertNotIn("shared mapping", rows)
            self.assertEqual(listener.stdout.readline().decode(), "millrace bench-net: a peer was served\n")
        # Strangers do not end it.
        host, port = address.split(":")
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"hello 9\n", b"\0" * 1000, b"hello 1\nmemory 99999999999999\nmemory -1\ntransport\n"):
            with socket.create_connection((host, int(port))) as stranger:
                try:
                    stranger.sendall(noise)
                    stranger.shutdown(socket.SHUT_WR)
                    self.assertNotIn(b"\nok", stranger.recv(1000)[3:])
                except OSError:
                    pass  # it has hung up already
            self.assertIn("a peer was", listener.stdout.readline().decode())
        self.assertEqual(self.millrace("bench-net", "--peer", address, "--seconds=0.1", "--max_size=1KB").returncode, 0)

    def test_a_lost_peer_is_told(self):
        listener, address = self.listen()
        listener.kill()
        listener.wait()
        result = self.millrace("bench-net", "--peer", address, *SMALL)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("cannot connect to %s" % address, result.stderr)
        self.assertIn("--listen", result.stderr)
        # In the middle, and a process of the same host: whichever it does, it ends with a word of it.
        process = subprocess.Popen([processes.MILLRACE, "bench-net", "--max_size=1MB", "--seconds=30"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        self.addCleanup(process.kill)
        for pid in self.until(lambda: partners() - self.before):
            os.kill(pid, signal.SIGKILL)
        out, error = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out), (1, b""))
        self.assertRegex(error.decode(), "^millrace bench-net: .*the connection ended")

    def test_a_killed_one_leaves_no_partner(self):
        process = subprocess.Popen([processes.MILLRACE, "bench-net", "--max_size=1MB", "--seconds=30"], stdout=subprocess.DEVNULL, env=clean_environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.until(lambda: partners() - self.before)
        process.kill()
        process.wait()
        # tearDown waits for its end.

    def test_mistakes_in_its_flags_are_explained(self):
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for flags, code, words in (
                (["--listen=a:1", "--peer=b:1"], 2, ["--listen", "--peer", "not both"]),
                (["--peer=nowhere"], 2, ["--peer", "nowhere", "host:port"]),
                (["--listen=localhost"], 2, ["--listen", "host:port"]),
                (["--listen=localhost:0", "--json=x"], 2, ["--json", "--peer"]),
                (["--max_size=big"], 2, ["--max_size", "'big'", "10MB"]),
                (["--max_size=10"], 2, ["--max_size", "1KB"]),
                (["--max_size=99999999999GB"], 2, ["--max_size", "not a size"]),
                (["--seconds=0"], 2, ["--seconds"]),
                (["--seconds=nan"], 2, ["--seconds"]),
                (["--seconds=x"], 2, ["--seconds"]),
                (["--json=/no/such/folder/net.json"], 2, ["--json", "/no/such/folder"]),
                (["--no_such_flag"], 2, ["--no_such_flag", "--help"]),
                (["--listen=127.0.0.1:%d" % port], 1, ["127.0.0.1:%d" % port, "taken"]),
                (["--peer=no.such.host.invalid:1"], 1, ["no.such.host.invalid"])):
            with self.subTest(flags=flags):
                result = self.millrace("bench-net", *flags)
                self.assertEqual((result.returncode, result.stdout), (code, ""))
                for word in words:
                    self.assertIn(word, result.stderr)

    def test_help_tells_every_flag_and_examples(self):
        result = self.millrace("bench-net", "--help")
        self.assertEqual(result.returncode, 0)
        for flag in ("listen", "peer", "max_size", "seconds", "json", "ascii"):
            self.assertRegex(result.stdout, r"--%s\b.*(\n +)?.*\w+ \w+" % flag)
        self.assertIn("millrace bench-net --listen 0.0.0.0:2300", result.stdout)
        self.assertIn("bench-net", self.millrace("--help").stdout)


if __name__ == "__main__":
    processes.MILLRACE = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
