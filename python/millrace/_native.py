"""The library behind this package, as C functions (python/native/c_api.h)."""

import ctypes
import functools
import os
import pathlib
import sys

_CODES = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
          7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE",
          12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED"}


class Error(Exception):
    """What the library refused or could not do. `code` is the name of TensorFlow's status code, such as "NOT_FOUND"."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _find(variable, *places):
    """The file that the environment names, or the first of the places, relative to this package, that is there: a wheel has everything inside, an installed
    package and a build tree beside it."""
    if os.environ.get(variable):
        return os.environ[variable]
    package = pathlib.Path(os.path.abspath(__file__)).parent
    paths = [os.path.normpath(package / place) for place in places]
    for path in paths:
        if os.path.exists(path):
            return path
    raise ImportError("millrace: there is none of %s: install the wheel (`pip install $(python/build)`), or in a build tree run "
                      "`ninja millrace_c millrace_command`" % ", ".join(paths))


def command():
    """The path of the `millrace` command."""
    return _find("MILLRACE_COMMAND", "bin/millrace", "../../bin/millrace", "../../../../bin/millrace")


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded when it is first used."""
    path = _find("MILLRACE_LIBRARY", "lib/libmillrace_c.so", "../libmillrace_c.so")
    # Another library of the process may have functions of the same names in other versions: TensorFlow brings its own protobuf and gRPC, for all to
    # see. This one must find its own first, and show its to nobody.
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    except OSError as error:
        raise ImportError("millrace: the library cannot be loaded: %s" % error) from None
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


def call(name, *arguments):
    """Calls millrace_`name`, which takes `arguments` and a place for an error; raises Error if it fails."""
    error = ctypes.c_void_p()
    code = getattr(library(), "millrace_" + name)(*arguments, ctypes.byref(error))
    if code == 0:
        return
    try:
        message = ctypes.string_at(error.value).decode(errors="replace")
    finally:
        library().millrace_free(error)
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
            getattr(library(), "millrace_%s_delete" % self._kind)(pointer)

    def __del__(self):
        # When the interpreter ends, other threads may still use a server; it ends with the process.
        if getattr(self, "_pointer", None) and not (self._kind == "server" and sys.is_finalizing()):
            self.close()
