#!/usr/bin/env python3
"""Lists of nodes are read as Slurm and TensorFlow read them: node_list_test.py NODE_LIST_PROBE [LISTS [SEED]].

The judges are `scontrol show hostnames` and, where tests/venv has made its environment, TensorFlow's SlurmClusterResolver.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PROBE, COUNT, SEED = "", 1000, 1
BETWEEN = "between-two-lists"


def brackets(rng, numbers=5):
    parts = []
    for _ in range(rng.randint(1, 3)):
        width = rng.randint(1, 4)
        first = rng.randint(0, 10 ** width - 1)
        last = first + rng.randint(0, numbers)
        # Slurm refuses a range whose width grows under leading zeros (09-100).
        if rng.random() < 0.5 or len(str(last)) > width:
            parts.append("%0*d" % (width, first))
        else:
            parts.append("%0*d-%0*d" % (width, first, width, last))
    return "[%s]" % ",".join(parts)


def name(rng, most_brackets):
    text = rng.choice("abcxyz") + "".join(rng.choice("abz09-") for _ in range(rng.randint(0, 4))).strip("-")
    text += rng.choice(["", "n", "-"])
    count = rng.randint(0, most_brackets)
    # Slurm accepts no text behind the last bracket.
    between = [rng.choice(["", "c", "-rack"]) if i + 1 < count else "" for i in range(count)]
    return text.strip("-") + "".join(brackets(rng, 3) + more for more in between)


def lists(count, seed, most_brackets=2):
    rng = random.Random(seed)
    return [",".join(name(rng, most_brackets) for _ in range(rng.randint(1, 4))) for _ in range(count)]


def expand(texts):
    done = subprocess.run([PROBE], input="".join(text + "\n" for text in texts), capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    return [line.split(" ") for line in done.stdout.splitlines()]


def by_scontrol(texts):
    with tempfile.TemporaryDirectory() as folder:
        conf = os.path.join(folder, "slurm.conf")
        with open(conf, "w") as f:
            f.write("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=all Nodes=ALL\n")
        commands = "".join("show hostnames %s\nshow hostnames %s\n" % (text, BETWEEN) for text in texts)
        done = subprocess.run(["scontrol"], input=commands, capture_output=True, text=True, timeout=3600,
                              env={**os.environ, "SLURM_CONF": conf, "TERM": "dumb", "COLUMNS": "100000"})
    found = [[]]
    for line in done.stdout.splitlines():
        # It repeats each command.
        if line == BETWEEN:
            found.append([])
        elif line and not line.startswith(("show hostnames", "scontrol: ")):
            found[-1].append(line)
    return found[:-1]


BY_TENSORFLOW = """
import sys
from tensorflow.python.distribute.cluster_resolver.slurm_cluster_resolver import expand_hostlist
for line in sys.stdin:
    print(" ".join(expand_hostlist(line.strip())))
"""


class NodeListTest(unittest.TestCase):
    def compare(self, texts, judged):
        self.assertEqual(len(texts), len(judged))
        for text, ours, theirs in zip(texts, expand(texts), judged):
            self.assertEqual(ours, theirs, text)

    def test_the_lists_of_the_manual(self):
        self.assertEqual(expand(["a,b[01,03-05],r[0-1]c[1-2]"]), [["a", "b01", "b03", "b04", "b05", "r0c1", "r0c2", "r1c1", "r1c2"]])

    @unittest.skipIf(shutil.which("scontrol") is None, "scontrol is not installed")
    def test_random_lists_are_read_as_scontrol_reads_them(self):
        texts = lists(COUNT, SEED)
        self.compare(texts, by_scontrol(texts))

    @unittest.skipIf(shutil.which("scontrol") is None, "scontrol is not installed")
    def test_names_with_three_brackets_are_the_same_in_some_order(self):
        texts = lists(COUNT // 10, SEED + 2, most_brackets=3)
        judged = by_scontrol(texts)
        self.assertEqual([sorted(names) for names in expand(texts)], [sorted(names) for names in judged])

    def test_random_lists_are_read_as_tensorflow_reads_them(self):
        python = os.path.join(os.environ.get("MILLRACE_TEST_VENV", os.path.join(ROOT, ".venv-tests")), "bin/python")
        if not os.path.exists(python):
            self.skipTest("tests/venv has made no environment with TensorFlow")
        # TensorFlow's knows one pair of brackets, at the end of a name.
        texts = lists(COUNT, SEED + 1, most_brackets=1)
        done = subprocess.run([python, "-c", BY_TENSORFLOW], input="".join(text + "\n" for text in texts), capture_output=True, text=True, timeout=3600,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.compare(texts, [line.split(" ") for line in done.stdout.splitlines()])


if __name__ == "__main__":
    PROBE = os.path.abspath(sys.argv[1])
    if len(sys.argv) > 2:
        COUNT = int(sys.argv[2])
    if len(sys.argv) > 3:
        SEED = int(sys.argv[3])
    unittest.main(argv=sys.argv[:1])
