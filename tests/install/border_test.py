#!/usr/bin/env python3
"""Sees the check of the installed headers fail where it should."""
import pathlib
import tempfile
import unittest

import border


class Border(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("millrace.h", '#include "millrace/tensor/tensor.h"\n')
        self.write("tensor/tensor.h", '#include <vector>\n\n#include "absl/status/status.h"\n')

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / "millrace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def faults(self):
        return border.faults(self.root)[0]

    def test_accepts_what_the_umbrella_reaches(self):
        self.assertEqual(self.faults(), [])

    def test_names_who_includes_a_header_that_is_not_installed(self):
        self.write("tensor/tensor.h", '#include "millrace/base/ref.h"\n')
        self.assertEqual(self.faults(), ["millrace/base/ref.h is not installed, but millrace/tensor/tensor.h includes it"])

    def test_names_the_way_to_an_internal_header(self):
        self.write("tensor/tensor.h", '#include "millrace/net/transport.h"\n')
        self.write("net/transport.h", "")
        self.assertEqual(self.faults(), ["millrace/net/transport.h is internal, but is included by millrace/tensor/tensor.h, "
                                         "which is included by millrace/millrace.h"])

    def test_names_a_header_that_nobody_includes(self):
        self.write("base/clock.h", "")
        self.assertEqual(self.faults(), ["millrace/base/clock.h is installed, but millrace/millrace.h does not reach it"])

    def test_names_a_library_that_programs_would_need(self):
        self.write("tensor/tensor.h", "#include <grpc/grpc.h>\n")
        self.assertEqual(self.faults(), ["millrace/tensor/tensor.h includes <grpc/grpc.h>: programs would need grpc too"])


if __name__ == "__main__":
    unittest.main()
