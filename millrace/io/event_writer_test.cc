#include "millrace/io/event_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace millrace {
namespace {

std::vector<pb::Event> Events(const std::string& path) {
  const auto reader = RecordReader::Open(FileSystem::Posix(), path).value();
  std::vector<pb::Event> events;
  std::string record;
  while (reader->Read(&record).value()) EXPECT_TRUE(events.emplace_back().ParseFromString(record));
  return events;
}

TEST(EventWriterTest, TheVersionComesFirstAndIsThereAtOnce) {
  TempDirectory dir = TempDirectory::Make("events").value();
  const auto writer = EventWriter::Create(dir.File("run/train"), {.suffix = ".v2"}).value();
  EXPECT_TRUE(absl::StrContains(writer->path(), "run/train/events.out.tfevents.")) << writer->path();
  EXPECT_TRUE(absl::EndsWith(writer->path(), ".v2"));
  const std::vector<pb::Event> events = Events(writer->path());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1e9);
}

TEST(EventWriterTest, SummariesFollow) {
  TempDirectory dir = TempDirectory::Make("events").value();
  const auto writer = EventWriter::Create(dir.path()).value();
  ASSERT_TRUE(writer->WriteSummary("\x0a\x0b\x0a\x04loss\x15\x00\x00\x40\x40", 3).ok());
  ASSERT_TRUE(writer->Flush().ok());
  const std::vector<pb::Event> events = Events(writer->path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step(), 3);
  EXPECT_GE(events[1].wall_time(), events[0].wall_time());
  EXPECT_TRUE(absl::StrContains(events[1].summary(), "loss"));
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(writer->WriteSummary("", 4).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EventWriterTest, TwoWritersOfOneSecondHaveTwoFiles) {
  TempDirectory dir = TempDirectory::Make("events").value();
  const auto one = EventWriter::Create(dir.path()).value();
  const auto two = EventWriter::Create(dir.path()).value();
  EXPECT_NE(one->path(), two->path());
}

TEST(EventWriterTest, TensorFlowsFileIsRead) {
  const std::vector<pb::Event> events =
      Events(absl::StrCat(MILLRACE_TESTDATA, "/records/events.out.tfevents.0000000001.host"));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 3);
}

}  // namespace
}  // namespace millrace
