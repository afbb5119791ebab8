"""`import millrace.tensorflow` makes TensorFlow's programs start Millrace's servers.

`tf.compat.v1.train.Server`, `tf.train.Server` and `tf.distribute.Server` then serve from Millrace's library, in the same process; everything else of the
program stays as it is. Import it before the program makes a server. Under `millrace launch --python` no program needs it.
"""

import tensorflow as tf
from tensorflow.python.training import server_lib

from millrace import _tensorflow_server
from millrace._tensorflow_server import Server

_tensorflow_server.install(server_lib)
TensorFlowServer = _tensorflow_server.tensorflows_own()


def _put(server):
    for module in (server_lib, tf.compat.v1.train, tf.distribute, getattr(tf, "train", None)):
        if hasattr(module, "Server"):
            module.Server = server


def install():
    """Puts Server in the place of TensorFlow's; importing this module does it."""
    _put(Server)


def uninstall():
    """Puts TensorFlow's own class back."""
    _put(TensorFlowServer)


install()
