"""A real Slurm on this machine: a controller and nodes, each in namespaces of its own (tests/network/machines.py), with munge between them.

Nothing of it is left: its processes end with their namespaces, its files are in one temporary folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../network"))
import machines  # noqa: E402

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged")

CONF = """ClusterName=millrace
SlurmctldHost=control
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
KillWait=5
SchedulerParameters=bf_interval=1,bf_min_age_reserve=0,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
{extra}
NodeName={nodes} CPUs={slots} RealMemory=1000 State=UNKNOWN{gres}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def why_not():
    """Why there can be no Slurm here; None if there can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return "not installed: " + ", ".join(missing) if missing else machines.why_not()


class Cluster:
    """`nodes` nodes named node1, node2, ... with `slots` cores each, which are not this machine's: Slurm is told so."""

    def __init__(self, nodes=2, slots=8, gpus=0):
        self.folder = tempfile.mkdtemp(prefix="mrs.", dir=os.environ.get("TMPDIR"))  # short: sockets are made in it
        self._network = None
        try:
            self._start(nodes, slots, gpus)
        except BaseException:
            self.close()
            raise

    def _start(self, nodes, slots, gpus):
        self._network = machines.Network(1 + nodes)
        names = ["control"] + ["node%d" % (number + 1) for number in range(nodes)]
        with open(self._path("hosts"), "w") as f:
            f.write("127.0.0.1 localhost\n")
            for name, machine in zip(names, self._network.machines):
                f.write("%s %s\n" % (machine.address, name))
        os.mkdir(self._path("state"))
        with open(self._path("munge.key"), "wb") as f:
            f.write(os.urandom(128))
        os.chmod(self._path("munge.key"), 0o400)
        with open(self._path("slurm.conf"), "w") as f:
            f.write(CONF.format(folder=self.folder, nodes=",".join(names[1:]), slots=slots, extra="GresTypes=gpu" if gpus else "",
                                gres=" Gres=gpu:%d" % gpus if gpus else ""))
        if gpus:
            self._pretend_gpus(gpus)
        # What Slurm kills cannot remove its credentials: they go where the cluster's files are.
        self.environment = {"SLURM_CONF": self._path("slurm.conf"), "MUNGE_SOCKET": self._path("munge.socket"), "XDG_RUNTIME_DIR": self.folder}
        self.control, self.nodes = self._network.machines[0], self._network.machines[1:]
        for name, machine in zip(names, self._network.machines):
            words = "mount --bind %s /etc/hosts && hostname %s" % (self._path("hosts"), name)
            assert machine.start("sh", "-c", words).end(10) == 0
        self._daemons = [self.control.start(
            "munged", "--foreground", "--force", "--key-file=" + self._path("munge.key"), "--socket=" + self._path("munge.socket"),
            "--pid-file=" + self._path("munged.pid"), "--log-file=" + self._path("munged.log"), "--seed-file=" + self._path("munged.seed"))]
        self._until(lambda: os.path.exists(self._path("munge.socket")), "munged listens")
        self._daemons.append(self.control.start("slurmctld", "-D", environment=self.environment))
        self._slurmds = [None] * nodes
        for number, name in enumerate(names[1:]):
            os.mkdir(self._path("spool-" + name))
            self.start_slurmd(number)
        self.until_idle()

    def start_slurmd(self, number):
        """That of nodes[number]."""
        slurmd = self.nodes[number].start("slurmd", "-D", "-N", "node%d" % (number + 1), environment=self.environment)
        self._slurmds[number] = slurmd
        self._daemons.append(slurmd)

    def kill_slurmd(self, number):
        """The daemon alone: the steps that it has started go on."""
        slurmd = self._slurmds[number]
        self._daemons.remove(slurmd)
        # nsenter is the parent of the daemon.
        with open("/proc/%d/task/%d/children" % (slurmd.process.pid, slurmd.process.pid)) as children:
            subprocess.run(["kill", "-KILL", *children.read().split()], check=True)
        slurmd.end(20)

    def until_idle(self):
        """No job uses a node any more, and all nodes are there."""
        self._until(self._all_idle, "all nodes are idle", seconds=60)

    def _pretend_gpus(self, gpus):
        """Devices that stand for GPUs: Slurm hands them out and sets CUDA_VISIBLE_DEVICES."""
        for number in range(gpus):
            subprocess.run(["mknod", self._path("gpu%d" % number), "c", "1", "3"], check=True)
        with open(self._path("gres.conf"), "w") as f:
            f.write("Name=gpu File=%s Flags=nvidia_gpu_env\n" % self._path("gpu[0-%d]" % (gpus - 1) if gpus > 1 else "gpu0"))

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _all_idle(self):
        said = self.run("sinfo", "-h", "-N", "-o", "%t")
        return said.returncode == 0 and set(said.stdout.split()) == {"idle"}

    def _until(self, reached, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline or any(d.process.poll() is not None for d in self._daemons):
                raise AssertionError("not reached: %s; the daemons say\n%s\n%s" % (what, "\n".join(d.text() for d in self._daemons), self.logs()))
            time.sleep(0.02)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(self._path(name)) as f:
                    text += "%s:\n%s\n" % (name, "".join(f.readlines()[-30:]))
        return text

    def start(self, *words, environment=None):
        """A command of Slurm's on the controller's machine (machines.Process)."""
        return self.control.start(*words, environment={**self.environment, **(environment or {})})

    def run(self, *words, environment=None, seconds=60):
        inside = self.control.inside(*words)
        return subprocess.run(inside, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
                              env={**os.environ, **self.environment, **(environment or {})})

    def close(self):
        if self._network is not None:
            self._network.close()
        shutil.rmtree(self.folder, ignore_errors=True)
