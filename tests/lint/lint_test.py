#!/usr/bin/env python3
"""./lint in a repository of its own: lint_test.py ROOT. Needs clang-format; clang-tidy is not run."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


class Lint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name in ("lint", ".clang-format", ".clang-tidy"):
            shutil.copy(ROOT / name, self.root)
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)

    def tearDown(self):
        self.folder.cleanup()

    def lint(self, *flags):
        return subprocess.run([self.root / "lint", *flags], capture_output=True, text=True)

    def test_names_a_file_that_is_not_formatted_and_leaves_it_alone(self):
        (self.root / "good.cc").write_text("int main() { return 0; }\n")
        (self.root / "bad.cc").write_text("int  main( ) {return 0;}\n")
        result = self.lint("--format")
        self.assertEqual(result.returncode, 1)
        self.assertIn("bad.cc: not formatted", result.stdout)
        self.assertNotIn("good.cc", result.stdout)
        self.assertEqual((self.root / "bad.cc").read_text(), "int  main( ) {return 0;}\n")

    def test_fix_formats(self):
        (self.root / "bad.h").write_text("int  f( ) ;\n")
        self.assertEqual(self.lint("--format", "--fix").returncode, 0)
        self.assertEqual((self.root / "bad.h").read_text(), "int f();\n")
        self.assertEqual(self.lint("--format").returncode, 0)

    def test_a_mistake_in_the_command_is_2(self):
        for flags in (["--no_such"], ["--base"], ["-j", "many"], ["--format", "--tidy"]):
            result = self.lint(*flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn("lint: ", result.stderr)

    def test_a_base_that_does_not_exist_is_a_mistake(self):
        result = self.lint("--tidy", "--base", "no_such_revision")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no_such_revision", result.stderr)

    def test_help(self):
        result = self.lint("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: ./lint", result.stdout)


if __name__ == "__main__":
    unittest.main()
