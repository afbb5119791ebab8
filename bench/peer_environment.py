"""Where the benchmarks' programs are, and the Python of the peers."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
PEERS = ROOT / "bench" / "peers"
PACKAGES = ("tensorflow-cpu==2.21.0", "torch", "torchvision", "jax")


def prepare_peers(folder):
    """The Python of the virtual environment in `folder`, which is made if it is missing."""
    folder = pathlib.Path(folder).absolute()
    python = folder / "bin" / "python"
    ready = folder / ".millrace-peers"
    if not ready.exists() and not python.exists():
        print(f"Making {folder} with {', '.join(PACKAGES)} (a few minutes)", file=sys.stderr)
        venv.create(folder, with_pip=True)
    if not ready.exists():
        found = subprocess.run([python, "-c", "import tensorflow, torch, torchvision, jax"], capture_output=True)
        if found.returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        ready.touch()
    return python


def load(name):
    """Another benchmark of this folder, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
