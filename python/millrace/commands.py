"""The `millrace` command and its functions."""

import json
import os
import subprocess
import sys
from typing import Any, Dict, Optional, Sequence

from millrace import _native


def launch(program: Sequence[str], *, ps: int = 0, workers: int = 1, python: bool = False, options: Sequence[str] = (),
           env: Optional[Dict[str, str]] = None, check: bool = True) -> int:
    """Runs `program` as every task of a job of `ps` parameter servers and `workers` workers, as `millrace launch` does, and waits for its end.

    Each task finds its place in TF_CONFIG. A program that ends in .py is run by this Python. With `python`, the servers of TensorFlow's programs are Millrace's
    without a line in them. `options` are further options of the command, such as "--log_dir=logs". Returns the exit code of the job; with `check`, raises subprocess.CalledProcessError if it is not 0.
    """
    if isinstance(program, (str, bytes)) or not program:
        raise TypeError("program is a list of words, such as [\"train.py\", \"--steps=100\"], not %r" % (program,))
    words = [os.fspath(word) for word in program]
    if words[0].endswith(".py"):
        words.insert(0, sys.executable)
    command = [_native.command(), "launch", "--ps", str(ps), "--workers", str(workers), *(["--python"] if python else []), *options, "--", *words]
    return subprocess.run(command, env=None if env is None else {**os.environ, **env}, check=check).returncode


def status(target: str, *, timeout: float = 5) -> Dict[str, Any]:
    """What the tasks of a cluster do and wait for, asked at one of them ("grpc://host:port" or "host:port"), as `millrace status --json` tells it.
    A task that does not answer within `timeout` seconds is in it with its error."""
    answer = subprocess.run([_native.command(), "status", "--json", "--timeout", str(timeout), "--target", target], capture_output=True, text=True)
    try:
        return json.loads(answer.stdout)
    except ValueError:
        raise _native.Error("INVALID_ARGUMENT", (answer.stderr or answer.stdout).strip()) from None


def main() -> None:
    """The command itself."""
    os.environ.setdefault("MILLRACE_PYTHON", sys.executable)  # runs the scripts of `launch --python`
    os.execv(_native.command(), [_native.command(), *sys.argv[1:]])
