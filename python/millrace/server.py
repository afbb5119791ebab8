"""A task of a cluster in this process."""

import ctypes
import threading
from typing import Optional

from millrace import _native
from millrace.cluster_spec import ClusterSpec


class Server:
    """Serves a task of a cluster from this process, as `tf.train.Server` does, with no process beside it.

    >>> server = Server({"local": ["localhost:0"]}, "local", 0)
    >>> server.target.startswith("grpc://localhost:")
    True
    >>> server.stop()
    """

    def __init__(self, cluster, job_name: Optional[str] = None, task_index: Optional[int] = None, *, config: bytes = b"",
                 insecure: bool = False):
        """`cluster` is a ClusterSpec or what one is made of. Without a job or an index, the cluster must have one only. `config` is a serialized
        ConfigProto, the default of sessions that have none. `insecure` serves beyond this machine without TLS: whoever reaches the port can run graphs.
        Raises `millrace.Error` if the port is taken, or the cluster has no such task."""
        self.cluster = ClusterSpec(cluster)
        if job_name is None:
            if len(self.cluster.jobs) != 1:
                raise ValueError("a job_name is needed: the cluster has the jobs " + ", ".join(self.cluster.jobs))
            job_name = self.cluster.jobs[0]
        if task_index is None:
            if self.cluster.num_tasks(job_name) != 1:
                raise ValueError("a task_index is needed: job %r has %d tasks" % (job_name, self.cluster.num_tasks(job_name)))
            task_index = self.cluster.task_indices(job_name)[0]
        self.job_name, self.task_index = job_name, task_index
        self._stopped = threading.Event()
        self._handle = _native.Handle("server", "server_start", self.cluster.to_flag().encode(), job_name.encode(), ctypes.c_int(task_index), config,
                                      ctypes.c_size_t(len(config)), ctypes.c_int(insecure))
        self.target: str = _native.library().millrace_server_target(self._handle.pointer).decode()

    @staticmethod
    def create_local_server(*, config: bytes = b"") -> "Server":
        """A cluster of one task on a free port of this machine."""
        return Server({"localhost": ["localhost:0"]}, "localhost", 0, config=config)

    def join(self) -> None:
        """Blocks until another thread calls `stop`, or Ctrl-C."""
        # A signal that comes just before the wait begins does not interrupt it.
        while not self._stopped.wait(1):
            pass

    def stop(self, timeout: float = 60) -> None:
        """Ends running steps and frees the port. May be called repeatedly. Raises DEADLINE_EXCEEDED, which says what still runs after `timeout` seconds."""
        if self._stopped.is_set():
            return
        _native.call("server_stop", self._handle.pointer, ctypes.c_double(timeout))
        self._stopped.set()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_):
        self.stop()
