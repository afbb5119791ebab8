"""The library behind this package, as C functions (python/native/c_api.h)."""

import ctypes
import os
import pathlib

_CODES = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
          7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE",
          12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED"}


class Error(Exception):
    """What the library refused or could not do. `code` is the name of TensorFlow's status code, such as "NOT_FOUND"."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def command():
    """The path of the `millrace` command."""
    if "MILLRACE_COMMAND" in os.environ:
        return os.environ["MILLRACE_COMMAND"]
    return str(pathlib.Path(__file__).parent / "bin" / "millrace")


def _load():
    path = os.environ.get("MILLRACE_LIBRARY") or str(pathlib.Path(__file__).parent / "lib" / "libmillrace_c.so")
    # Another library of the process may have functions of the same names in other versions: TensorFlow brings its own protobuf and gRPC, for all to
    # see. This one must find its own first, and show its to nobody.
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    library.millrace_version.restype = ctypes.c_char_p
    library.millrace_free.argtypes = [ctypes.c_void_p]
    library.millrace_free.restype = None
    for name in ("server_target", "events_path"):
        getattr(library, "millrace_" + name).argtypes = [ctypes.c_void_p]
        getattr(library, "millrace_" + name).restype = ctypes.c_char_p
    for name in ("server", "checkpoint_reader", "checkpoint_writer", "event_reader", "event_writer"):
        getattr(library, "millrace_%s_delete" % name).argtypes = [ctypes.c_void_p]
        getattr(library, "millrace_%s_delete" % name).restype = None
    return library


LIBRARY = _load()
VERSION = LIBRARY.millrace_version().decode()


def call(name, *arguments):
    """Calls millrace_`name`, which takes `arguments` and a place for an error; raises Error if it fails."""
    error = ctypes.c_void_p()
    code = getattr(LIBRARY, "millrace_" + name)(*arguments, ctypes.byref(error))
    if code == 0:
        return
    try:
        message = ctypes.string_at(error.value).decode(errors="replace")
    finally:
        LIBRARY.millrace_free(error)
    raise Error(_CODES.get(code, str(code)), message)


class Handle:
    """An object of the library. It ends with `close` or with this object."""

    def __init__(self, kind, create, *arguments):
        self._kind = kind
        self._pointer = ctypes.c_void_p()
        call(create, *arguments, ctypes.byref(self._pointer))

    @property
    def pointer(self):
        if not self._pointer:
            raise ValueError("it is closed")
        return self._pointer

    def close(self):
        pointer, self._pointer = self._pointer, ctypes.c_void_p()
        if pointer:
            getattr(LIBRARY, "millrace_%s_delete" % self._kind)(pointer)

    def __del__(self):
        if getattr(self, "_pointer", None):
            self.close()
