// Event files for TensorBoard, written by a background thread.
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
  // How often the file is flushed, which is how long an event may stay invisible to readers. Zero flushes after each
  // write.
  absl::Duration flush_every = absl::Seconds(20);
  // Limits of the queue of events that are not written yet.
  size_t max_queue = 1000;
  size_t max_queue_bytes = size_t{64} << 20;
  // How long Add, Flush and Close wait for a disk that does not keep up before they fail.
  absl::Duration max_wait = absl::Seconds(10);
  // Appended to the names of the files.
  std::string filename_suffix = {};
  FileSystem* files = FileSystem::Posix();
  Clock* clock = Clock::Real();
  WallClock* wall_clock = WallClock::Real();  // the time stamps of events
};

// Thread-safe. Any number of writers, in any processes, may write to one directory: each has its own file. After a disk
// error every call returns that error until Reopen. The destructor closes the file and waits for a write in progress.
class FileWriter {
 public:
  // Creates the directory if needed, and a new file in it.
  static StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& directory,
                                                      const FileWriterOptions& options = {});
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;

  const std::string& directory() const;
  // The path of the current file.
  std::string path() const;

  // The Add methods do not block unless the queue is full. If it stays full for `max_wait`, they drop the event and
  // return RESOURCE_EXHAUSTED. FAILED_PRECONDITION after Close.
  Status AddEvent(::tensorflow::Event event);
  // `summary` is the result of a summary op: a scalar string, the serialized Summary.
  Status AddSummary(const Tensor& summary, int64_t step);
  Status AddSummary(const ::tensorflow::Summary& summary, int64_t step);
  // Writes one number that no summary op computed.
  Status AddScalar(absl::string_view tag, double value, int64_t step);
  Status AddGraph(const Scope& scope, int64_t step = 0);
  Status AddGraph(const ::tensorflow::GraphDef& graph, int64_t step = 0);
  Status AddMetaGraph(const ::tensorflow::MetaGraphDef& graph, int64_t step = 0);
  // Writes the statistics of a traced step. TensorBoard shows each tag once.
  Status AddRunMetadata(const ::tensorflow::RunMetadata& metadata, absl::string_view tag, int64_t step);
  Status AddSessionLog(const ::tensorflow::SessionLog& log, int64_t step);

  // Blocks until everything added so far is in the file; DEADLINE_EXCEEDED after `max_wait`.
  Status Flush();
  // Flushes and closes the file. A second call does nothing.
  Status Close();
  // Starts a new file in the same directory, after Close or an error.
  Status Reopen();

  // The number of events dropped because the queue was full.
  int64_t dropped() const;

 private:
  struct State;
  explicit FileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
