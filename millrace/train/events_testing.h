// Reads event files back. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/io/record.h"
#include "millrace/proto/event.pb.h"
#include "millrace/proto/summary.pb.h"

namespace millrace {

inline std::vector<::tensorflow::Event> EventsOf(const std::string& path) {
  const auto reader = RecordReader::Open(FileSystem::Posix(), path).value();
  std::vector<::tensorflow::Event> events;
  std::string record;
  while (reader->Read(&record).value()) EXPECT_TRUE(events.emplace_back().ParseFromString(record));
  return events;
}

// The steps and tags of the summaries in a file, as "3 loss".
inline std::vector<std::string> SummariesOf(const std::string& path) {
  std::vector<std::string> all;
  for (const ::tensorflow::Event& event : EventsOf(path)) {
    ::tensorflow::Summary summary;
    EXPECT_TRUE(summary.ParseFromString(event.summary()));
    for (const auto& value : summary.value()) all.push_back(std::to_string(event.step()) + " " + value.tag());
  }
  return all;
}

}  // namespace millrace
