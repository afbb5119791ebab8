"""Runs the programs of programs.py between recorders: record.py RECORDER FOLDER. See `record`."""

import subprocess
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import programs


class Recording:
    """A recorder in front of `server`, or of a server of its own with a late GPU."""

    def __init__(self, recorder, out, server=None):
        where = ["--target=" + server] if server else ["--late"]
        self.process = subprocess.Popen([recorder, "--out=" + out] + where, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.target = self.process.stdout.readline().strip()

    def __enter__(self):
        return self.target

    def __exit__(self, *failure):
        self.process.stdin.close()
        if self.process.wait(60) != 0 and not any(failure):
            raise SystemExit("the recorder ended with %d" % self.process.returncode)


def run(program, target, **kw):
    tf.reset_default_graph()
    return program(tf, target, **kw)


def check_near(name, got, want):
    """Of nested lists of arrays: within what float allows after ten steps."""
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), name
        for g, w in zip(got, want):
            check_near(name, g, w)
    elif np.asarray(want).dtype.kind in "OSU":
        assert got == want, (name, got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


def main():
    recorder, folder = sys.argv[1:]
    tf.disable_eager_execution()
    lines = []
    for program in programs.ANYWHERE + programs.NEED_GPU:
        name, needs_gpu = program.__name__, program in programs.NEED_GPU
        # A server for each: state stays in it.
        server = tf.train.Server({"localhost": ["127.0.0.1:0"]}, protocol="grpc")
        out = "%s/%s.exchanges" % (folder, name)
        if needs_gpu:
            want = run(program, server.target, soft=True)
            with Recording(recorder, out) as target:
                check_near(name, run(program, target), want)
        else:
            with Recording(recorder, out, server.target) as target:
                run(program, target)
        lines.append("%s %s 1e-4 1e-5\n" % (name, "gpu" if needs_gpu else "any"))
        print("recorded", name)
    with open(folder + "/index.txt", "w") as index:
        index.writelines(lines)


if __name__ == "__main__":
    main()
