"""Jobs of `millrace launch` as processes, and the certainty that nothing of them is left."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import uuid

MILLRACE = ""  # the command, set by main
PROBE = ""     # cluster_probe, of tests/serve

MARK = "LAUNCH_TEST_MARK"


def set_size(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def free_port():
    """A port that was free just now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield listening.getsockname()[1]


def state_of(pid):
    """The letter of a process's state: R, S, T, Z, ..."""
    with open("/proc/%s/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def processes_with(mark):
    """Pids of processes (zombies aside) whose environment has the mark, with their command lines."""
    found = {}
    wanted = ("%s=%s" % (MARK, mark)).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as f:
                if wanted not in f.read().split(b"\0"):
                    continue
            if state_of(name) in "ZX":
                continue
            with open("/proc/%s/cmdline" % name, "rb") as f:
                found[int(name)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


class Job:
    """A launcher that runs, with what it prints."""

    def __init__(self, words, mark, cwd, env=None, terminal=None):
        self.mark = mark
        self.out, self.err = b"", b""
        environment = dict(os.environ, **(env or {}))
        environment[MARK] = mark
        self.master = None
        if terminal:
            self.master, slave = pty.openpty()
            set_size(slave, *terminal)
            environment["TERM"] = "xterm"

            def lead():
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment, preexec_fn=lead)
            os.close(slave)
            self.streams = {self.master: "out"}
        else:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environment)
            self.streams = {self.process.stdout.fileno(): "out", self.process.stderr.fileno(): "err"}

    @property
    def pid(self):
        return self.process.pid

    def read(self, seconds=0.05):
        """Takes what there is; False when all has been said."""
        if not self.streams:
            return False
        for fd in select.select(list(self.streams), [], [], seconds)[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:  # the terminal has no other end any more
                data = b""
            if not data:
                del self.streams[fd]
                continue
            setattr(self, self.streams[fd], getattr(self, self.streams[fd]) + data)
        return True

    def wait_for(self, text, seconds=30):
        """Reads until `text` was printed, to stdout or stderr."""
        deadline = time.monotonic() + seconds
        text = text.encode()
        while text not in self.out and text not in self.err:
            if time.monotonic() > deadline or not self.read():
                raise AssertionError("%r did not come; there are\n%s\n%s" % (text, self.stdout, self.stderr))
        return self

    def end(self, seconds=30):
        """The exit code, once it has ended."""
        deadline = time.monotonic() + seconds
        while self.read() and time.monotonic() < deadline:
            pass
        try:
            return self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError("the launcher did not end; there are\n%s\n%s\n%s" % (self.stdout, self.stderr, processes_with(self.mark)))

    @property
    def stdout(self):
        return self.out.decode(errors="replace")

    @property
    def stderr(self):
        return self.err.decode(errors="replace")

    def tasks(self):
        """Pids of the programs by the name of their task."""
        pids = {}
        for line in (self.stdout + self.stderr).splitlines():
            words = line.split()
            if len(words) > 5 and words[0] == "millrace:" and words[2:5] == ["is", "running:", "pid"]:
                pids[words[1]] = int(words[5].rstrip(","))
        return pids

    def below(self):
        """Pids of the launcher's processes by command line."""
        return processes_with(self.mark)

    def keepers(self, name):
        """Pids of its processes that call themselves so: millrace-keeper, millrace-guard."""
        found = []
        for pid in self.below():
            try:
                with open("/proc/%d/comm" % pid) as f:
                    if f.read().strip() == name:
                        found.append(pid)
            except OSError:
                pass
        return found


class LaunchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.mark = uuid.uuid4().hex
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self, seconds=10):
        left = self.left(seconds)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, {}, "processes are left")

    def left(self, seconds=10):
        """What still runs of the job after so long at most."""
        deadline = time.monotonic() + seconds
        while True:
            found = processes_with(self.mark)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def program(self, text, name="program.py"):
        """A Python program in the test's folder; its command."""
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        return [sys.executable, path]

    def launch(self, *words, **kwargs):
        job = Job([MILLRACE, "launch", *words], self.mark, kwargs.pop("cwd", self.folder), **kwargs)

        def end():
            if job.process.poll() is None:
                job.process.kill()
            job.process.wait()
            for stream in (job.process.stdout, job.process.stderr):
                if stream:
                    stream.close()
            if job.master is not None:
                os.close(job.master)
        self.addCleanup(end)
        return job

    def run_job(self, *words, **kwargs):
        job = self.launch(*words, **kwargs)
        job.code = job.end()
        return job

    def status(self, *words):
        return subprocess.run([MILLRACE, "status", *words], capture_output=True, text=True, timeout=30)

    def until(self, reached, seconds=30):
        deadline = time.monotonic() + seconds
        while True:
            value = reached()
            if value or time.monotonic() > deadline:
                self.assertTrue(value, "this did not come to pass in %d s" % seconds)
                return value
            time.sleep(0.02)


def main():
    """For test programs: TEST MILLRACE CLUSTER_PROBE [unittest's arguments]."""
    global MILLRACE, PROBE
    MILLRACE, PROBE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
