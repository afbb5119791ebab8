#!/usr/bin/env python3
"""Sees the check of headers fail where it should."""
import unittest

import headers

LAYERS = headers.read_layers("base: \nproto: \ntensor: base proto\nnet: tensor\n")
OBJECT = "millrace/{0}/CMakeFiles/millrace_{0}.dir/a.cc.o: #deps 2, deps mtime 1 (VALID)\n"


class Headers(unittest.TestCase):
    def test_what_the_used_rooms_use_may_be_seen(self):
        self.assertEqual(LAYERS["net"], {"net", "tensor", "base", "proto"})

    def test_accepts_ones_own_headers_and_those_of_used_rooms(self):
        deps = OBJECT.format("net") + "    ../../millrace/net/bytes.h\n    ../../millrace/base/ref.h\n    /usr/include/absl/a.h\n"
        self.assertEqual(headers.faults(LAYERS, deps), [])

    def test_names_room_and_header(self):
        deps = OBJECT.format("base") + "    ../../millrace/tensor/shape.h\n" + OBJECT.format("net") + "    ../../millrace/tensor/shape.h\n"
        found = headers.faults(LAYERS, deps)
        self.assertEqual(len(found), 1)
        self.assertIn("millrace/base may not use millrace/tensor/shape.h", found[0])

    def test_a_rooms_light_files_are_the_rooms(self):
        deps = OBJECT.format("base").replace("millrace_base.dir", "millrace_base_light.dir") + "    ../../millrace/tensor/shape.h\n"
        self.assertEqual(len(headers.faults(LAYERS, deps)), 1)

    def test_absolute_paths_count_too(self):
        deps = OBJECT.format("base") + "    /home/a/millrace/millrace/tensor/shape.h\n"
        self.assertEqual(len(headers.faults(LAYERS, deps)), 1)

    def test_objects_that_are_no_more_do_not_count(self):
        deps = OBJECT.format("base").replace("VALID", "STALE") + "    ../../millrace/tensor/shape.h\n"
        self.assertEqual(headers.faults(LAYERS, deps), [])

    def test_an_include_line_may_name_only_rooms_that_the_room_uses_itself(self):
        uses = headers.read_uses("base: \ntensor: base\nnet: tensor\n")
        text = '#include "millrace/tensor/shape.h"\n#include "millrace/net/bytes.h"\n#include "absl/strings/str_cat.h"\n'
        self.assertEqual(headers.include_faults(uses, "net", "millrace/net/a.cc", text), [])
        found = headers.include_faults(uses, "net", "millrace/net/a.cc", text + '#include "millrace/base/ref.h"\n')
        self.assertEqual(len(found), 1)
        self.assertIn("millrace/net may not use millrace/base/ref.h, which millrace/net/a.cc includes", found[0])

    def test_the_time_of_day_is_for_time_stamps(self):
        for text in ("x = absl::Now() + patience;", "std::chrono::system_clock::now()", "srand(time(nullptr))", "WallClock::Real()->Now()"):
            found = headers.clock_faults("millrace/net/a.cc", "\n" + text)
            self.assertEqual(len(found), 1, text)
            self.assertIn("millrace/net/a.cc:2: ", found[0])
            self.assertEqual(headers.clock_faults("millrace/base/clock.cc", text), [])
        self.assertEqual(headers.clock_faults("millrace/net/a.cc", "Clock::Real()->Now(); run_time(0); options.wall_clock->Now()"), [])
        self.assertEqual(headers.clock_faults("millrace/io/event_writer.h", "WallClock* wall_clock = WallClock::Real();"), [])
        self.assertEqual(len(headers.clock_faults("millrace/io/event_writer.h", "absl::Now()")), 1)


if __name__ == "__main__":
    unittest.main()
