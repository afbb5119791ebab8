"""Machines in a network, each a set of Linux namespaces on this one: addresses, ports, processes and shared memory of its own.

A machine is not on the network of this one, and nothing of it outlives the test: its processes end with the first of them, its links with it.
"""

import ctypes
import os
import subprocess
import sys
import threading
import time

ISOLATED = ["unshare", "--net", "--pid", "--ipc", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc"]
CLONE_NEWNET = 0x40000000


def enter_own_user_namespace():
    """Without root: runs this program again as the root of a user namespace of its own."""
    if os.geteuid() != 0:
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", sys.executable, "-B", *sys.argv])


def why_not():
    """Why there can be no machines here; None if there can."""
    tried = subprocess.run([*ISOLATED, "sh", "-c", "ip link add name bridge type bridge"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "network namespaces are not available: " + tried.stderr.strip()


def in_network(namespace, make):
    """What `make` returns, called in the network that the file `namespace` stands for: sockets that it makes stay there."""
    made = []

    def call():
        with open(namespace) as f:  # only this thread's network changes
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) == 0:
                made.append(make())
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return made[0]


class _Namespaces:
    """Namespaces that last until close, or until this process ends."""

    def __init__(self):
        # The first process of the namespaces ends when nobody has the other end of its input any more.
        self.holder = subprocess.Popen([*ISOLATED, "sh", "-c", "echo here; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"here\n"
        with open("/proc/%d/task/%d/children" % (self.holder.pid, self.holder.pid)) as children:
            self.first = children.read().split()[0]

    def inside(self, *words):
        return ["nsenter", "--target", self.first, "--net", "--pid", "--ipc", "--uts", "--mount", *words]

    def ip(self, *words):
        """Only on its network: process numbers are those of this machine."""
        subprocess.run(["nsenter", "--target", self.first, "--net", "ip", *words], check=True)

    def close(self):
        self.holder.stdin.close()
        self.holder.stdout.close()
        self.holder.kill()
        self.holder.wait()


class Process:
    """A program on a machine, with what it prints."""

    def __init__(self, words, environment):
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        self._text, self._changed = "", threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self._text += line.decode(errors="replace")
                self._changed.notify_all()

    def text(self):
        with self._changed:
            return self._text

    def wait_for(self, words, seconds, after=0):
        """Until it has printed `words` behind the first `after` characters."""
        end = time.monotonic() + seconds
        with self._changed:
            while words not in self._text[after:]:
                if not self._reader.is_alive() or time.monotonic() > end:
                    raise AssertionError("%r was not printed within %g s, but:\n%s" % (words, seconds, self._text))
                self._changed.wait(0.2)

    def end(self, seconds):
        """Its exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError("it did not end within %g s; it said:\n%s" % (seconds, self.text())) from None
        self._reader.join(5)
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        self.process.stdout.close()


class Machine:
    def __init__(self, network, number):
        self.address = "10.99.0.%d" % (number + 1)
        self._network, self._port, self._processes = network, "port%d" % number, []
        self._namespaces = _Namespaces()
        network.ip("link", "add", self._port, "type", "veth", "peer", "name", "lan", "netns", self._namespaces.first)
        network.ip("link", "set", self._port, "master", "bridge", "up")
        for words in (("addr", "add", self.address + "/24", "dev", "lan"), ("link", "set", "lan", "up"), ("link", "set", "lo", "up")):
            self._namespaces.ip(*words)

    def inside(self, *words):
        """The command that runs `words` there."""
        return self._namespaces.inside(*words)

    @property
    def network_namespace(self):
        """The file that stands for its network."""
        return "/proc/%s/ns/net" % self._namespaces.first

    def start(self, *words, environment=None):
        self._processes.append(Process(self.inside(*words), environment or {}))
        return self._processes[-1]

    def forget_names(self):
        """As in a container with neither /etc/hosts nor a name server: only addresses can be dialled."""
        for path in ("/etc/hosts", "/etc/resolv.conf"):
            subprocess.run(self._namespaces.inside("mount", "--bind", "/dev/null", path), check=True)

    def use_hosts(self, path):
        """Only the names in that file, as they are at each look-up; there is no name server."""
        for here, there in ((path, "/etc/hosts"), ("/dev/null", "/etc/resolv.conf")):
            subprocess.run(self._namespaces.inside("mount", "--bind", here, there), check=True)

    def cut(self):
        """Pulls the cable: nothing arrives any more, in either direction, and nobody is told."""
        self._network.ip("link", "set", self._port, "nomaster")

    def mend(self):
        self._network.ip("link", "set", self._port, "master", "bridge")

    def close(self):
        self._namespaces.close()  # ends all that runs there
        for process in self._processes:
            process.close()


class Network:
    """`machines` machines at one switch."""

    def __init__(self, machines):
        self.machines, self._switch = [], _Namespaces()
        try:
            self._switch.ip("link", "add", "name", "bridge", "type", "bridge")
            self._switch.ip("link", "set", "bridge", "up")
            for number in range(machines):
                self.machines.append(Machine(self._switch, number))
        except BaseException:
            self.close()
            raise

    def close(self):
        for machine in self.machines:
            machine.close()
        self._switch.close()
