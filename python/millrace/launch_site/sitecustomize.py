"""What `millrace launch --python` makes every Python of a job load at its start: TensorFlow's servers are then Millrace's, and `import millrace` is the
package of the launcher.

Nothing is imported for it now. When the program imports TensorFlow, the class in tensorflow.python.training.server_lib, which every public name of it comes
from, is replaced right after that module is loaded. The folder of this file is on PYTHONPATH, so that Pythons that the program starts load it too; an
empty MILLRACE_PYTHON_SERVERS gives them TensorFlow's own servers.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_HERE)
_SERVER_LIB = "tensorflow.python.training.server_lib"


def _load_uncollected(load, module):
    """Loads TensorFlow without looking for garbage among its million objects, of which there is none: a sixth of its processor time."""
    import gc
    enabled = gc.isenabled()
    gc.disable()
    try:
        load(module)
    finally:
        if enabled:
            gc.enable()


def _load_and_replace(load, module):
    load(module)
    from millrace import _tensorflow_server
    _tensorflow_server.install(module)


_LOADS = {"tensorflow": _load_uncollected, _SERVER_LIB: _load_and_replace}


class _Finder:
    """Finds `millrace` beside this file, and hears of the imports of TensorFlow and of its servers."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "millrace":
            return importlib.util.spec_from_file_location(name, os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE])
        if name not in _LOADS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        spec.loader.exec_module = functools.partial(_LOADS[name], spec.loader.exec_module)
        return spec


def _run_the_next_sitecustomize():
    """A Python has one sitecustomize, the first on its path. That of the user or of the system follows."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    importlib.invalidate_caches()
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


if os.environ.get("MILLRACE_PYTHON_SERVERS"):
    sys.meta_path.insert(0, _Finder)
_run_the_next_sitecustomize()
