"""`import millrace.tensorflow` makes TensorFlow's programs start Millrace's servers.

`tf.compat.v1.train.Server`, `tf.train.Server` and `tf.distribute.Server` then serve from Millrace's library, in the same process; everything else of the
program stays as it is. Import it before the program makes a server.
"""

import os

import tensorflow as tf
from tensorflow.python.training import server_lib

import millrace

TensorFlowServer = server_lib.Server


class Server:
    """`tf.distribute.Server` on Millrace's library. Takes the same arguments."""

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        self._server_def = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        if self._server_def.protocol not in ("", "grpc"):
            raise ValueError("Millrace's servers speak grpc, not %r" % self._server_def.protocol)
        self._cluster = millrace.ClusterSpec(tf.train.ClusterSpec(self._server_def.cluster))
        self._server = None
        # The address is known before the server listens, unless the system chooses the port.
        self._target = "grpc://" + self._cluster.task_address(self._server_def.job_name, self._server_def.task_index)
        if start:
            self.start()

    def start(self):
        if self._server is None:
            if os.environ.get("MILLRACE_TLS_DIR"):
                raise RuntimeError("this job's servers use TLS (MILLRACE_TLS_DIR is set), which TensorFlow's client does not speak: start it with "
                                   "`millrace launch --insecure`")
            self._server = millrace.Server(self._cluster, self._server_def.job_name, self._server_def.task_index,
                                           config=self._server_def.default_session_config.SerializeToString())
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


def install():
    """Puts Server in the place of TensorFlow's; importing this module does it."""
    for module in (server_lib, tf.compat.v1.train, tf.distribute, getattr(tf, "train", None)):
        if hasattr(module, "Server"):
            module.Server = Server


def uninstall():
    """Puts TensorFlow's own class back."""
    for module in (server_lib, tf.compat.v1.train, tf.distribute, getattr(tf, "train", None)):
        if hasattr(module, "Server"):
            module.Server = TensorFlowServer


install()
