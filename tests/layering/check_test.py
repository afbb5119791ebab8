#!/usr/bin/env python3
"""Sees the layering check fail where it should."""
import pathlib
import tempfile
import unittest

import check


class LayeringCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("CMakeLists.txt", "foreach(room base graph ops)\nendforeach()\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / "millrace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_accepts_includes_of_earlier_rooms_and_ones_own(self):
        self.write("ops/math/add.cc", '#include "millrace/ops/add.h"\n#include "millrace/base/status.h"\n')
        self.assertEqual(check.faults(self.root), [])

    def test_names_file_and_line_of_an_include_of_a_later_room(self):
        self.write("base/status.cc", '#include <string>\n#include "millrace/graph/graph.h"\n')
        found = check.faults(self.root)
        self.assertEqual(len(found), 1)
        self.assertIn("base/status.cc:2: base may not use graph/graph.h", found[0])

    def test_the_front_door_is_for_the_last_room_only(self):
        self.write("graph/graph.cc", '#include "millrace/millrace.h"\n')
        self.write("ops/op.cc", '#include "millrace/millrace.h"\n')
        found = check.faults(self.root)
        self.assertEqual(len(found), 1)
        self.assertIn("graph/graph.cc:1", found[0])

    def test_a_folder_without_a_place_in_the_order_is_a_fault(self):
        self.write("misc/a.h", "")
        self.assertIn("misc is not in the list", check.faults(self.root)[0])

    def test_tests_may_use_everything(self):
        self.write("base/status_test.cc", '#include "millrace/ops/add.h"\n')
        self.write("base/status_testing.h", '#include "millrace/ops/add.h"\n')
        self.assertEqual(check.faults(self.root), [])


if __name__ == "__main__":
    unittest.main()
