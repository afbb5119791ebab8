// What a graph writes to an event file is in it.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/file.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/io/record.h"
#include "millrace/proto/event.pb.h"
#include "millrace/proto/summary.pb.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::EndsWith;

TEST(SummaryWriter, WritesEventsThatComeBack) {
  const auto folder = TempDirectory::Make("summary_writer");
  ASSERT_TRUE(folder.ok());
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint writer = b.Op("SummaryWriter", {});
  const Endpoint step = b.Scalar<int64_t>(7);
  b.control_inputs = {
      b.AddNode("CreateSummaryFileWriter", {writer, b.Scalar<std::string>(folder->path()), b.Scalar<int32_t>(10),
                                            b.Scalar<int32_t>(1000), b.Scalar<std::string>(".v2")})};
  b.control_inputs = {
      b.AddNode("WriteScalarSummary", {writer, step, b.Scalar<std::string>("loss"), b.Scalar<float>(1.5f)})};
  b.control_inputs = {b.AddNode("WriteAudioSummary",
                                {writer, step, b.Scalar<std::string>("a"),
                                 b.Const(Tensor::Of<float>(Shape({1, 4}), {0, 0.5f, -1, 2})), b.Scalar<float>(16000)})};
  Node* const close = b.AddNode("CloseSummaryWriter", {writer});
  b.control_inputs = {};
  Node* const late = b.AddNode("WriteScalarSummary", {writer, step, b.Scalar<std::string>("loss"), b.Scalar<float>(2)});
  ASSERT_TRUE(b.ok()) << b.status();
  auto session = Session::Create();
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->Extend(graph).ok());
  std::vector<Tensor> none;
  const Status ran = (*session)->Run({}, {}, {}, {close->name()}, &none, nullptr);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_EQ((*session)->Run({}, {}, {}, {late->name()}, &none, nullptr).code(), absl::StatusCode::kNotFound);

  const auto names = FileSystem::Posix()->List(folder->path());
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1);
  EXPECT_THAT((*names)[0], EndsWith(".v2"));
  const std::string bytes = ReadWholeFile(FileSystem::Posix(), folder->File((*names)[0])).value();
  // Records: length, its checksum, the event, its checksum.
  std::vector<pb::Event> events;
  for (size_t at = 0; at + 16 <= bytes.size();) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    ASSERT_LE(size, bytes.size() - at - 16);
    ASSERT_TRUE(events.emplace_back().ParseFromArray(bytes.data() + at + 12, static_cast<int>(size)));
    at += 16 + size;
  }
  ASSERT_EQ(events.size(), 3);
  pb::Summary summary;
  ASSERT_TRUE(summary.ParseFromString(events[1].summary()));
  EXPECT_EQ(events[1].step(), 7);
  EXPECT_EQ(summary.value(0).tag(), "loss");
  EXPECT_EQ(summary.value(0).simple_value(), 1.5f);
  ASSERT_TRUE(summary.ParseFromString(events[2].summary()));
  EXPECT_EQ(summary.value(0).tag(), "a/audio/0");
  // As TensorFlow writes these samples.
  EXPECT_THAT(summary.value(0).audio().encoded_audio_string(),
              EndsWith(std::string("data\x08\0\0\0\0\0\0\x40\0\x80\xff\x7f", 16)));
}

}  // namespace
}  // namespace millrace
