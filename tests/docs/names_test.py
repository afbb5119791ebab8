#!/usr/bin/env python3
"""docs/names.md has every name of TensorFlow's modules, and each C++ name that it gives exists.

    names_test.py COMPILER INCLUDE_DIR...

The C++ names are what stands in backquotes in the second column. They are written to a source file that uses each of
them once, which the compiler checks without making an object.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILER, INCLUDES = [], []


def rows_of(text):
    """(TensorFlow's name, the second column) for each row of the tables."""
    module, rows = None, []
    for line in text.splitlines():
        if line.startswith("## "):
            module = line[3:].strip()
        found = re.fullmatch(r"\| `([^`]+)` \| (.+) \|", line)
        if found:
            rows.append(("%s.%s" % (module, found[1]), found[2]))
    return rows


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def use(name, number):
    """A declaration that is an error unless millrace::NAME exists."""
    if not re.fullmatch(r"\w+(::\w+)*", name):
        return '#error "%s" is not a name' % name
    full = "millrace::" + name
    outer, _, last = full.rpartition("::")
    if not outer.rpartition("::")[2][0].isupper():  # in a namespace
        return "namespace use%d { using %s; }" % (number, full)
    if re.match(r"k[A-Z]", last):  # of an enum
        return "constexpr auto use%d = %s;" % (number, full)
    return "struct Use%d : %s { using %s; };" % (number, outer, full)


def compile_names(names):
    """The compiler's errors about names that do not exist, by name."""
    lines = ['#include "millrace/millrace.h"'] + [use(name, i) for i, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "names.cc"
        source.write_text("\n".join(lines) + "\n")
        command = COMPILER + ["-std=c++20", "-fsyntax-only", "-w", "-fmax-errors=0"]
        command += ["-I%s" % folder for folder in INCLUDES] + [str(source)]
        result = subprocess.run(command, capture_output=True, text=True)
    wrong = {}
    for line, message in re.findall(r"names\.cc:(\d+):(?:\d+:)? (?:fatal )?error: (.*)", result.stderr):
        wrong.setdefault(names[int(line) - 2] if int(line) > 1 else "millrace.h", message)
    if result.returncode != 0 and not wrong:
        wrong["the compiler"] = result.stderr[-2000:]
    return wrong


class NamesTest(unittest.TestCase):
    maxDiff = None

    def test_every_name_of_tensorflow_is_there_once(self):
        listed = [line for line in (HERE / "tensorflow_names.txt").read_text().splitlines() if not line.startswith("#")]
        self.assertGreater(len(listed), 500)
        given = [name for name, _ in rows_of((ROOT / "docs/names.md").read_text())]
        self.assertEqual(sorted(set(listed) - set(given)), [], "names that docs/names.md lacks")
        self.assertEqual(sorted(set(given) - set(listed)), [], "names that TensorFlow does not have")
        self.assertEqual(len(given), len(set(given)), "names that docs/names.md has twice")

    def test_a_row_has_a_name_or_a_reason(self):
        for name, cell in rows_of((ROOT / "docs/names.md").read_text()):
            reason = re.sub(r"`[^`]*`", "", cell).strip()
            self.assertTrue(names_in(cell) or len(reason) > 10, "%s: %s" % (name, cell))

    def test_every_name_of_ours_exists(self):
        names = sorted({n for _, cell in rows_of((ROOT / "docs/names.md").read_text()) for n in names_in(cell)})
        self.assertGreater(len(names), 200)
        # Names that do not exist, of each kind: the check must find them, and only them.
        wrong = ["NoSuchClass", "layers::NoSuchLayer", "Saver::NoSuchMethod", "losses::Reduction::kNoSuch", "nowhere::X",
                 "TrainSpec::no_such_member", "not a name"]
        errors = compile_names(names + wrong)
        self.assertEqual({n: errors[n] for n in errors if n not in wrong}, {}, "names of docs/names.md that do not exist")
        self.assertEqual(sorted(errors), sorted(wrong))


if __name__ == "__main__":
    COMPILER, INCLUDES = [sys.argv[1]], sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
