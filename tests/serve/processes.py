"""Servers and clients as processes, for tests of the `millrace` command."""

import os
import random
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
import unittest

MILLRACE = ""  # the command, set by the test program
PROBE = ""     # cluster_probe

PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "no_proxy", "NO_PROXY", "no_grpc_proxy")
LINE = re.compile(r"millrace: (/job:\w+/replica:0/task:\d+) serves at grpc://(\S+):(\d+) with (\S+)")


def clean_environment(**more):
    environment = {k: v for k, v in os.environ.items() if k not in PROXIES}
    environment.update(more)
    return environment


def free_ports(count):
    """Loopback ports that nobody has; below those that the system gives to connections, one of which could take it before it is used."""
    sockets = []
    while len(sockets) < count:
        s = socket.socket()
        try:
            s.bind(("127.0.0.1", random.SystemRandom().randrange(10200, 32000)))
            sockets.append(s)
        except OSError:
            s.close()
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def suspend(process):
    """SIGSTOP, until it has stopped: the signal alone lets its threads run for a moment, on a busy machine for many milliseconds."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class Server:
    """A `millrace serve` that has said its first line; `before` is what the command is given to."""

    def __init__(self, *flags, env=None, before=()):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*before, MILLRACE, "serve", *flags], stdout=subprocess.PIPE, stderr=self.errors, env=env or clean_environment())
        self.line = self._read_line(30)
        match = LINE.match(self.line)
        if not match:
            self.end()
            raise AssertionError("the server said %r and: %s" % (self.line, self.error_text()))
        self.task, self.host, self.port = match.group(1), match.group(2), int(match.group(3))
        self.target = "grpc://%s:%d" % (self.host, self.port)

    def _read_line(self, seconds):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return "(nothing)"
        return self.process.stdout.readline().decode().strip()

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def stop(self, number=signal.SIGTERM):
        """The exit code after that signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=15)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class ServeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def serve(self, *flags, env=None, before=()):
        server = Server(*flags, env=env, before=before)
        self.addCleanup(server.end)
        self.addCleanup(server.errors.close)
        return server

    def cluster(self, *flags, env=None, before=()):
        """One ps and one worker."""
        ps, worker = free_ports(2)
        self.spec = "--cluster_spec=ps|localhost:%d,worker|localhost:%d" % (ps, worker)
        return [self.serve(self.spec, "--job_name=" + job, "--task_index=0", *flags, env=env, before=before) for job in ("ps", "worker")]

    def alone(self, *flags, **kwargs):
        return self.serve("--cluster_spec=worker|localhost:0", "--job_name=worker", "--task_index=0", *flags, **kwargs)

    def run_command(self, *words, env=None):
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env=env or clean_environment())

    def millrace(self, *words, **kwargs):
        return self.run_command(MILLRACE, *words, **kwargs)

    def probe(self, server, *words, tls=(), env=None):
        return self.run_command(PROBE, "--target=" + server.target, *tls, *words, env=env)

    def start_probe(self, server, *words):
        process = subprocess.Popen([PROBE, "--target=" + server.target, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def until(self, reached):
        """What `reached` gives once that is something."""
        deadline = time.monotonic() + 30
        while True:
            value = reached()
            if value or time.monotonic() > deadline:
                self.assertTrue(value, "this did not come to pass in 30 s")
                return value
