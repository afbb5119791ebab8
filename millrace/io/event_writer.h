// Event files for TensorBoard: TFRecord files of Event messages, the first of which holds the format version.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/io/record.h"
#include "millrace/proto/event.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

struct EventWriterOptions {
  FileSystem* files = FileSystem::Posix();
  WallClock* wall_clock = WallClock::Real();
  // Appended to the file name.
  std::string suffix = {};
};

// Thread-safe. After an error nothing more is written, and every later call returns that error.
class EventWriter {
 public:
  // Creates the directory and in it the file events.out.tfevents.SECONDS.HOST plus the suffix, and flushes its first
  // record.
  static StatusOr<std::unique_ptr<EventWriter>> Create(const std::string& directory,
                                                       const EventWriterOptions& options = {});

  const std::string& path() const { return path_; }

  // A wall_time of 0 is replaced by the current time.
  Status Write(pb::Event event);
  // Writes a serialized Summary, as summary ops return it.
  Status WriteSummary(absl::string_view summary, int64_t step);
  Status Flush();
  // Flushes, then closes. No other call may follow.
  Status Close();

 private:
  EventWriter(std::string path, WallClock* clock, std::unique_ptr<RecordWriter> records)
      : path_(std::move(path)), clock_(clock), records_(std::move(records)) {}

  const std::string path_;
  WallClock* const clock_;
  Mutex mu_;
  std::unique_ptr<RecordWriter> records_ ABSL_GUARDED_BY(mu_);
  Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
