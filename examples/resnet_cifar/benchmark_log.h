// Measurements as lines of JSON in a file, with the names that TensorFlow's models use.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "millrace/millrace.h"

// Appends to DIR/metric.log; without a directory, to nothing. Not thread-safe.
class BenchmarkLog {
 public:
  static millrace::StatusOr<BenchmarkLog> Open(const std::string& directory) {
    BenchmarkLog log;
    if (directory.empty()) return log;
    millrace::FileSystem* const files = millrace::FileSystem::Posix();
    MR_RETURN_IF_ERROR(files->MakeDirectories(directory));
    MR_ASSIGN_OR_RETURN(log.file_, files->OpenWritable(millrace::JoinPath(directory, "metric.log"),
                                                       millrace::FileSystem::Mode::kAppend));
    return log;
  }

  millrace::Status Add(const char* name, double value, int64_t step) {
    if (file_ == nullptr) return absl::OkStatus();
    const std::string now =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", millrace::WallClock::Real()->Now(), absl::UTCTimeZone());
    MR_RETURN_IF_ERROR(file_->Append(absl::StrFormat(
        "{\"name\": \"%s\", \"value\": %.6g, \"unit\": null, \"global_step\": %d, \"timestamp\": \"%s\", "
        "\"extras\": []}\n",
        name, value, step, now)));
    return file_->Flush();
  }

 private:
  BenchmarkLog() = default;
  std::unique_ptr<millrace::WritableFile> file_;
};
