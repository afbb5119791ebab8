// Event files for TensorBoard, written beside the training by a thread of their own.
//
//   auto writer = FileWriter::Create("logs/train").value();
//   writer->AddGraph(scope);
//   writer->AddSummary(results[0], step);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/api/scope.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/event.pb.h"
#include "millrace/proto/meta_graph.pb.h"
#include "millrace/proto/summary.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct FileWriterOptions {
  // How long an event may wait before a reader of the file can see it; zero: as soon as it is written.
  absl::Duration flush_every = absl::Seconds(20);
  // What may wait to be written.
  size_t max_queue = 1000;
  size_t max_queue_bytes = size_t{64} << 20;
  // How long Add, Flush and Close wait for a disk that does not keep up.
  absl::Duration patience = absl::Seconds(10);
  // Ends the names of the files.
  std::string filename_suffix = {};
  FileSystem* files = FileSystem::Posix();
  Clock* clock = Clock::Real();
};

// Thread-safe. Any number of writers, in any processes, may write to one directory: each has its own file. An error of the disk comes back from
// every later call until Reopen. The destructor closes, and waits for a write that is under way.
class FileWriter {
 public:
  // Makes the directory and a file in it.
  static StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& directory, const FileWriterOptions& options = {});
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;

  const std::string& directory() const;
  // Of the file that is being written.
  std::string path() const;

  // All of these return at once, unless the queue is full. RESOURCE_EXHAUSTED when it stays so: the event is dropped then. FAILED_PRECONDITION after
  // Close.
  Status AddEvent(::tensorflow::Event event);
  // What a summary op gave: a scalar of bytes.
  Status AddSummary(const Tensor& summary, int64_t step);
  Status AddSummary(const ::tensorflow::Summary& summary, int64_t step);
  // One number, without an op for it.
  Status AddScalar(absl::string_view tag, double value, int64_t step);
  Status AddGraph(const Scope& scope, int64_t step = 0);
  Status AddGraph(const ::tensorflow::GraphDef& graph, int64_t step = 0);
  Status AddMetaGraph(const ::tensorflow::MetaGraphDef& graph, int64_t step = 0);
  // What a traced step took. TensorBoard shows each tag once.
  Status AddRunMetadata(const ::tensorflow::RunMetadata& metadata, absl::string_view tag, int64_t step);
  Status AddSessionLog(const ::tensorflow::SessionLog& log, int64_t step);

  // What was added before is in the file. DEADLINE_EXCEEDED when that takes too long.
  Status Flush();
  // Flushes too. A second call does nothing.
  Status Close();
  // A new file in the same directory, after Close or an error.
  Status Reopen();

  // How many events were dropped because the queue was full.
  int64_t dropped() const;

 private:
  struct State;
  explicit FileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
