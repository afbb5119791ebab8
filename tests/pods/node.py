"""A node that runs containers: podman with runc, a bridge between them, and aardvark-dns for their names.

It is a set of namespaces (tests/network/machines.py), so that neither a container nor a network, a mount or a rule of the firewall outlives the test. Its
files are in one temporary folder; the control groups are below one of its own, which is removed.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../network"))
import machines  # noqa: E402

PROGRAMS = ("podman", "runc", "catatonit", "iptables", "/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns")
NETWORK = "cluster"
SUBNET = "10.99.1."
SERVICE = "10.99.2.1"  # an address of the node that every container reaches
BRIDGE = "podman1"  # as podman calls that of the first network
STOP = b"stop"
CONTROL_GROUPS = "/sys/fs/cgroup"

# A kernel may refuse to raise limits, so they are low; control groups are made without systemd.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "none"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
STORAGE_CONF = """[storage]
driver = "vfs"
graphroot = "{folder}/storage"
runroot = "/run/storage"
"""


class NoSuchName(threading.Thread):
    """The name server behind the containers': it knows no name at all, and says so at once."""

    def __init__(self, namespace):
        super().__init__()
        self._socket = machines.in_network(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._socket.bind((SERVICE, 53))
        self.start()

    def run(self):
        while True:
            question, client = self._socket.recvfrom(4096)
            if question == STOP:
                return
            end = 12
            while question[end]:  # the name's labels; what follows them is its type and class
                end += 1 + question[end]
            # An answer of code 3 with the question and no records.
            self._socket.sendto(question[:2] + b"\x81\x83" + b"\0\1" + bytes(6) + question[12:end + 5], client)

    def close(self):
        self._socket.sendto(STOP, (SERVICE, 53))
        self.join()
        self._socket.close()


class Refused(Exception):
    """What podman says when it cannot do something."""


def why_not():
    """Why there can be no containers here; None if there can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [os.path.basename(name) for name in PROGRAMS if shutil.which(name) is None]
    missing += [] if importlib.util.find_spec("yaml") else ["python3-yaml"]
    reason = "not installed: " + ", ".join(missing) if missing else machines.why_not()
    if reason:
        return reason
    node = None
    try:
        node = Node()
        node.try_container()
        return None
    except Refused as refused:
        return str(refused)
    finally:
        if node is not None:
            node.close()


class Node:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="mrp.", dir=os.environ.get("TMPDIR"))
        os.chmod(self.folder, 0o755)  # the containers' users pass through
        self.control_group = "millrace-test-%d-%s" % (os.getpid(), os.path.basename(self.folder)[4:])
        self._network, self._names, self._numbers = None, None, iter(range(10, 250))
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        self._network = machines.Network(1)
        self._machine = self._network.machines[0]
        os.mkdir(self.path("tmp"))
        for name, text in (("containers.conf", CONTAINERS_CONF), ("storage.conf", STORAGE_CONF)):
            with open(self.path(name), "w") as f:
                f.write(text.format(folder=self.folder))
        self._environment = {"CONTAINERS_CONF": self.path("containers.conf"), "CONTAINERS_STORAGE_CONF": self.path("storage.conf"), "TMPDIR": self.path("tmp"),
                             "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        with open(self.path("resolv.conf"), "w") as f:
            f.write("nameserver %s\n" % SERVICE)
        # What podman keeps outside of its folder is this node's alone.
        own = ["mount -t tmpfs tmpfs " + path for path in ("/run", "/dev/shm", "/var/lib")]
        self._run("sh", "-ec", "\n".join([*own, "mount --bind %s /etc/resolv.conf" % self.path("resolv.conf")]))
        self._run("ip", "address", "add", SERVICE + "/32", "dev", "lo")
        self._names = NoSuchName(self._machine.network_namespace)
        self.podman("network", "create", "--subnet", SUBNET + "0/24", NETWORK)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def keep_bridge_address(self):
        """To be called when a container has joined the network, before it sends anything.

        By itself a bridge has the lowest hardware address of what is connected to it. When that pod goes, the others lose what they send to the old one, to the
        name server above all, until they ask for it again half a minute later.
        """
        self._run("ip", "link", "set", BRIDGE, "address", "02:00:0a:63:01:01")

    def listen(self):
        """A listening socket that every container reaches."""
        return machines.in_network(self._machine.network_namespace, lambda: socket.create_server((SERVICE, 0)))

    def new_address(self):
        """For a container; none is given twice."""
        return SUBNET + str(next(self._numbers))

    def _run(self, *words, check=True, seconds=120):
        done = subprocess.run(self._machine.inside(*words), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
                              env={**os.environ, **self._environment})
        if check and done.returncode != 0:
            raise Refused("%s: %s" % (" ".join(words[:3]), done.stderr.strip()))
        return done

    def podman(self, *words, check=True, seconds=120):
        return self._run("podman", *words, check=check, seconds=seconds)

    def try_container(self):
        """Runs one that does nothing; Refused if that cannot be."""
        self.podman("pod", "create", "--name", "trial", "--network", NETWORK, "--cgroup-parent", "/" + self.control_group)
        self.podman("pod", "start", "trial")
        self.podman("pod", "rm", "--force", "--time", "0", "trial")

    def start(self, *words):
        """A container in the foreground, as a machines.Process: its output, and its exit code."""
        return self._machine.start("podman", *words, environment=self._environment)

    def load(self, archive):
        """The name of the image in an archive of deploy/image/build."""
        return self.podman("load", "--quiet", "--input", archive).stdout.split("Loaded image:")[-1].strip()

    def close(self):
        if self._names is not None:
            self._names.close()
        if self._network is not None:
            self._network.close()
        for _ in range(50):  # until the last process of a group is gone
            groups = [path for path, _, _ in os.walk(CONTROL_GROUPS, topdown=False) if "/" + self.control_group in path]
            for path in groups:
                try:
                    os.rmdir(path)
                except OSError:
                    time.sleep(0.1)
            if not groups:
                break
        shutil.rmtree(self.folder, ignore_errors=True)
