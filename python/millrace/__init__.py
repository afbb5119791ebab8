"""Millrace: distributed TensorFlow, from Python.

    import millrace

    server = millrace.Server({"ps": ["localhost:2222"], "worker": ["localhost:2223"]}, "ps", 0)
    server.join()

`millrace.tensorflow` puts these servers into TensorFlow's programs, `millrace.checkpoint` and `millrace.events` read and write files without TensorFlow, and
`launch` and `status` are the command's.
"""

from millrace import _native
from millrace._native import Error
from millrace.cluster_spec import ClusterSpec
from millrace.commands import launch, status
from millrace.server import Server

__all__ = ["ClusterSpec", "Error", "Server", "launch", "status", "__version__"]


def __getattr__(name):
    if name == "__version__":
        return _native.library().millrace_version().decode()
    raise AttributeError("module 'millrace' has no attribute %r" % name)
