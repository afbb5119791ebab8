"""TensorFlow's Server on Millrace's library, and how it comes into TensorFlow's place."""

import os
import sys

from millrace.cluster_spec import ClusterSpec
from millrace.server import Server as MillraceServer

_TENSORFLOWS = None  # the class that was there before
# As TensorFlow's, a server runs until its process ends: programs drop it before the session that is connected to it, which then could not be closed, and
# while their threads still run steps.
_RUNNING = []


def _server_lib():
    return sys.modules["tensorflow.python.training.server_lib"]


class Server:
    """`tf.distribute.Server` on Millrace's library. Takes the same arguments."""

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        self._server_def = _server_lib()._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        if self._server_def.protocol not in ("", "grpc"):
            raise ValueError("Millrace's servers speak grpc, not %r" % self._server_def.protocol)
        self._cluster = ClusterSpec(_server_lib().ClusterSpec(self._server_def.cluster))
        self._server = None
        # The address is known before the server listens, unless the system chooses the port.
        self._target = "grpc://" + self._cluster.task_address(self._server_def.job_name, self._server_def.task_index)
        if start:
            self.start()

    def start(self):
        if self._server is None:
            if os.environ.get("MILLRACE_TLS_DIR"):
                raise RuntimeError("this job's servers use TLS (MILLRACE_TLS_DIR is set), which TensorFlow's client does not speak: start it with "
                                   "`millrace launch --python` or `millrace launch --insecure`")
            self._server = MillraceServer(self._cluster, self._server_def.job_name, self._server_def.task_index,
                                          config=self._server_def.default_session_config.SerializeToString())
            _RUNNING.append(self._server)
            self._target = self._server.target

    def join(self):
        if self._server is not None:
            self._server.join()

    @property
    def server_def(self):
        return self._server_def

    @property
    def target(self):
        return self._target

    @staticmethod
    def create_local_server(config=None, start=True):
        return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)


def install(server_lib):
    """Puts Server into `server_lib`, the module tensorflow.python.training.server_lib. Names that were made of TensorFlow's class before keep it."""
    global _TENSORFLOWS
    if server_lib.Server is not Server:
        _TENSORFLOWS, server_lib.Server = server_lib.Server, Server


def tensorflows_own():
    """The class of TensorFlow, once `install` was called."""
    return _TENSORFLOWS
