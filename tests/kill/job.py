"""A job under `millrace launch` with real processes, for tests that kill some of them."""

import json
import os
import re
import signal
import subprocess
import threading
import time


class Task:
    """A process of the job, as the system tells it."""

    def __init__(self, pid, name):
        self.pid, self.name = pid, name


def _environment(pid):
    with open("/proc/%d/environ" % pid, "rb") as f:
        return dict(e.split("=", 1) for e in f.read().decode(errors="replace").split("\0") if "=" in e)


def ports_of(pid):
    """The TCP ports on which a process listens."""
    inodes = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            match = re.match(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            continue
        if match:
            inodes.add(match.group(1))
    ports = set()
    for table in ("tcp", "tcp6"):
        with open("/proc/%d/net/%s" % (pid, table)) as f:
            for line in list(f)[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


class Job:
    """Started at once. `marker` is a word of the program's command line that no other process has."""

    def __init__(self, command, marker, env=None):
        self.marker = marker
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                        env={**os.environ, **(env or {})})
        self.lines, self._changed = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for raw in self.process.stdout:
            with self._changed:
                self.lines.append((time.monotonic(), raw.decode(errors="replace").rstrip("\n")))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def text(self):
        with self._changed:
            return "\n".join(line for _, line in self.lines)

    def wait_for(self, pattern, seconds, after=0):
        """The match of the first line from number `after` on that has `pattern`."""
        end, seen = time.monotonic() + seconds, after
        with self._changed:
            while True:
                for _, line in self.lines[seen:]:
                    match = re.search(pattern, line)
                    if match:
                        return match
                seen = len(self.lines)
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    text = "\n".join(line for _, line in self.lines)
                    raise AssertionError("no line with %r within %g s; the job said:\n%s" % (pattern, seconds, text))
                self._changed.wait(min(left, 0.2))

    def global_steps(self, after=0):
        """The global steps that the workers' lines from number `after` on tell, in order."""
        with self._changed:
            return self._steps(after)

    def _steps(self, after):
        found = [re.search(r"^\[worker/\d+\].*\(global step (\d+)\)", line) for _, line in self.lines[after:]]
        return [int(match.group(1)) for match in found if match]

    def wait_for_step(self, step, seconds):
        """Until a worker has told a global step of at least `step`."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if max(self._steps(0), default=0) >= step:
                    return
                left = end - time.monotonic()
                if left <= 0:
                    text = "\n".join(line for _, line in self.lines)
                    raise AssertionError("step %d was not reached within %g s; the job said:\n%s" % (step, seconds, text))
                self._changed.wait(min(left, 0.2))

    def processes(self):
        """All processes with the marker on their command line, the launcher and its helpers too."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open("/proc/%s/cmdline" % entry, "rb") as f:
                    words = f.read().decode(errors="replace")
                with open("/proc/%s/stat" % entry) as f:
                    state = f.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if self.marker in words and state not in "ZX":
                found.append(int(entry))
        return found

    def task(self, name):
        """The pid of the program that is task `name` ("worker/1"): the one that its TF_CONFIG says so of and whose command is the program."""
        for pid in self.processes():
            try:
                config = json.loads(_environment(pid).get("TF_CONFIG", "{}"))
                with open("/proc/%d/cmdline" % pid, "rb") as f:
                    program = os.path.basename(f.read().split(b"\0")[0].decode())
            except (OSError, ValueError):
                continue
            task = config.get("task", {})
            if "%s/%s" % (task.get("type"), task.get("index")) == name and program != "millrace":
                return pid
        raise AssertionError("no process is %s; the job said:\n%s" % (name, self.text()))

    def end(self, seconds):
        """The launcher's exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError("the job did not end within %g s; it said:\n%s" % (seconds, self.text())) from None
        self._reader.join(5)
        return code

    def left_after(self, seconds):
        """What is left of the job when it had that long to go."""
        end = time.monotonic() + seconds
        while True:
            left = self.processes()
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def clean_up(self):
        for pid in [self.process.pid, *self.processes()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._reader.join(5)
        self.process.stdout.close()
