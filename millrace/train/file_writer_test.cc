#include "millrace/train/file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/api/api_testing.h"
#include "millrace/base/forwarding_files.h"
#include "millrace/io/faulty_files_testing.h"
#include "millrace/train/events_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FileWriterTest : public testing::Test {
 protected:
  TempDirectory dir_ = TempDirectory::Make("file_writer_test").value();
};

TEST_F(FileWriterTest, EverythingThatTensorBoardShowsIsWrittenInOrder) {
  Scope scope = Scope::NewRoot();
  const Output loss = ScalarSummary(scope, "loss", 0.5f);
  const auto writer = FileWriter::Create(dir_.File("logs")).value();
  ASSERT_EQ(writer->AddGraph(scope), absl::OkStatus());
  ASSERT_EQ(writer->AddSummary(RunOnce(scope, {loss})[0], 3), absl::OkStatus());
  ASSERT_EQ(writer->AddScalar("steps/s", 100, 4), absl::OkStatus());
  RunMetadata metadata;
  metadata.mutable_step_stats()->add_dev_stats()->set_device("/cpu:0");
  ASSERT_EQ(writer->AddRunMetadata(metadata, "step 4", 4), absl::OkStatus());
  ::tensorflow::SessionLog log;
  log.set_status(::tensorflow::SessionLog::CHECKPOINT);
  ASSERT_EQ(writer->AddSessionLog(log, 5), absl::OkStatus());
  ASSERT_EQ(writer->AddMetaGraph(::tensorflow::MetaGraphDef(), 6), absl::OkStatus());
  ASSERT_EQ(writer->Flush(), absl::OkStatus());
  const auto events = EventsOf(writer->path());
  ASSERT_EQ(events.size(), 7);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  ::tensorflow::GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(events[1].graph_def()));
  EXPECT_EQ(graph.node_size(), scope.graph()->num_nodes());
  EXPECT_THAT(SummariesOf(writer->path()), ElementsAre("3 loss", "4 steps/s"));
  EXPECT_EQ(events[4].tagged_run_metadata().tag(), "step 4");
  EXPECT_EQ(events[5].session_log().status(), ::tensorflow::SessionLog::CHECKPOINT);
  EXPECT_EQ(events[6].what_case(), ::tensorflow::Event::kMetaGraphDef);
  EXPECT_GT(events[2].wall_time(), 1e9);
}

TEST_F(FileWriterTest, WritersOfOneDirectoryHaveTheirOwnFiles) {
  const auto one = FileWriter::Create(dir_.path()).value(),
             two = FileWriter::Create(dir_.path(), {.filename_suffix = ".v2"}).value();
  ASSERT_TRUE(one->AddScalar("a", 1, 1).ok() && two->AddScalar("b", 1, 1).ok());
  ASSERT_TRUE(one->Close().ok() && two->Close().ok());
  EXPECT_NE(one->path(), two->path());
  EXPECT_TRUE(two->path().ends_with(".v2"));
  EXPECT_THAT(SummariesOf(one->path()), ElementsAre("1 a"));
  EXPECT_THAT(SummariesOf(two->path()), ElementsAre("1 b"));
}

TEST_F(FileWriterTest, AClosedWriterSaysSoUntilItIsOpenedAgain) {
  const auto writer = FileWriter::Create(dir_.path()).value();
  const std::string first = writer->path();
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  EXPECT_EQ(writer->Close(), absl::OkStatus());
  EXPECT_THAT(writer->AddScalar("a", 1, 1).message(), HasSubstr("is closed; call Reopen to start a new one"));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Flush()));
  ASSERT_EQ(writer->Reopen(), absl::OkStatus());
  EXPECT_NE(writer->path(), first);
  ASSERT_EQ(writer->AddScalar("a", 1, 1), absl::OkStatus());
  ASSERT_EQ(writer->Flush(), absl::OkStatus());
  EXPECT_THAT(SummariesOf(writer->path()), ElementsAre("1 a"));
}

TEST_F(FileWriterTest, AFullDiskIsReportedByLaterCallsUntilReopened) {
  FaultyFiles files;
  const auto writer = FileWriter::Create(dir_.path(), {.flush_every = absl::ZeroDuration(), .files = &files}).value();
  files.SetRoom(0);
  ASSERT_EQ(writer->AddScalar("a", 1, 1), absl::OkStatus());
  EXPECT_TRUE(absl::IsResourceExhausted(writer->Flush()));
  EXPECT_TRUE(absl::IsResourceExhausted(writer->AddScalar("a", 1, 1)));
  files.SetRoom(1 << 20);
  ASSERT_EQ(writer->Reopen(), absl::OkStatus());
  EXPECT_EQ(writer->AddScalar("a", 1, 2), absl::OkStatus());
  EXPECT_EQ(writer->Flush(), absl::OkStatus());
}

// A disk that stands still until it is let go.
class StuckFiles : public ForwardingFileSystem {
 public:
  StuckFiles() : ForwardingFileSystem(FileSystem::Posix()) {}
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base()->OpenWritable(path, mode));
    return std::make_unique<File>(this, std::move(file));
  }
  std::atomic<bool> stuck = false;
  Notification let_go;

 private:
  class File : public WritableFile {
   public:
    File(StuckFiles* files, std::unique_ptr<WritableFile> file) : files_(files), file_(std::move(file)) {}
    Status Append(absl::string_view data) override {
      if (files_->stuck) files_->let_go.Wait();
      return file_->Append(data);
    }
    Status Flush() override { return file_->Flush(); }
    Status Sync() override { return file_->Sync(); }
    Status Close() override { return file_->Close(); }

   private:
    StuckFiles* const files_;
    std::unique_ptr<WritableFile> file_;
  };
};

TEST_F(FileWriterTest, ADiskThatStandsStillDoesNotHoldUpTheTrainingForEver) {
  StuckFiles files;
  const auto writer =
      FileWriter::Create(
          dir_.path(),
          {.flush_every = absl::ZeroDuration(), .max_queue = 2, .max_wait = absl::Milliseconds(30), .files = &files})
          .value();
  files.stuck = true;
  Status status;
  size_t taken = 0;
  while (taken < 10 && (status = writer->AddScalar("a", 1, 0)).ok()) ++taken;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("was dropped: 2 wait to be written"));
  EXPECT_EQ(writer->dropped(), 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(writer->Flush()));
  files.stuck = false;
  files.let_go.Notify();
  EXPECT_EQ(writer->Flush(), absl::OkStatus());
  EXPECT_EQ(SummariesOf(writer->path()).size(), taken);
}

TEST_F(FileWriterTest, ManyThreadsMayAdd) {
  const auto writer = FileWriter::Create(dir_.path(), {.max_queue = 3}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer->AddScalar(absl::StrCat("t", t), i, i).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(writer->Close(), absl::OkStatus());
  EXPECT_EQ(SummariesOf(writer->path()).size(), 400);
}

TEST_F(FileWriterTest, WhatIsNoSummaryIsRefused) {
  const auto writer = FileWriter::Create(dir_.path()).value();
  EXPECT_THAT(writer->AddSummary(Tensor::Scalar(1.0f), 1).message(), HasSubstr("not float[]"));
  EXPECT_THAT(writer->AddRunMetadata(RunMetadata(), "", 1).message(), HasSubstr("needs a tag"));
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), dir_.File("file"), "").ok());
  EXPECT_FALSE(FileWriter::Create(dir_.File("file/logs")).ok());
}

TEST(SummaryTest, TagsAreFullNamesAndAllAreMerged) {
  Scope scope = Scope::NewRoot();
  EXPECT_TRUE(MergeAllSummaries(scope).empty());
  const Scope sub = scope.SubScope("train");
  ScalarSummary(sub, "loss", 1.0f);
  ScalarSummary(sub, "loss", 2.0f);
  HistogramSummary(sub, "a histogram", {1.0f, 2.0f});
  ImageSummary(scope, "image", Input(Tensor::FromSpan<float>(std::vector<float>(12, 0.5f), Shape({1, 2, 2, 3}))));
  TextSummary(scope, "note", "**so**");
  EXPECT_EQ(SummaryOps(scope).size(), 5);
  const Output all = MergeAllSummaries(scope);
  ASSERT_TRUE(scope.ok()) << scope.status();
  ::tensorflow::Summary summary;
  ASSERT_TRUE(summary.ParseFromString(RunOnce(scope, {all})[0].scalar<std::string>()));
  std::vector<std::string> tags;
  for (const auto& value : summary.value()) tags.push_back(value.tag());
  EXPECT_THAT(tags, ElementsAre("train/loss", "train/loss_1", "train/a_histogram", "image/image/0", "note"));
  EXPECT_EQ(summary.value(4).metadata().plugin_data().plugin_name(), "text");
  ScalarSummary(scope, "$", 1.0f);
  EXPECT_THAT(scope.status().message(), HasSubstr("is not a valid name for a summary"));
}

}  // namespace
}  // namespace millrace
