// The tasks' output in files (--log_dir), written by a process of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// A disk may stall for minutes, and a write to it then blocks. The launcher hands the output to a writer process
// through a pipe without blocking; what the writer does not take is kept, up to a limit, and the rest is left out of
// the files with a note there. Not thread-safe.
class LogFiles {
 public:
  static constexpr size_t kMaxKept = 16 << 20;  // bytes that the writer has not taken

  LogFiles() = default;  // writes nothing
  // Creates or truncates one file for each name in `directory`, and starts the writer. The calling process must have
  // one thread.
  static StatusOr<LogFiles> Open(const std::string& directory, const std::vector<std::string>& names);
  LogFiles(LogFiles&&) = default;
  LogFiles& operator=(LogFiles&&) = default;

  // Adds to the file with this index. Returns false if the bytes were left out because the writer is far behind or
  // gone.
  bool Add(int file, absl::string_view bytes);
  // To poll for writing; -1 if there is nothing to write.
  int fd() const { return pending_.empty() ? -1 : pipe_.get(); }
  void Flush();
  // To poll for reading: a file cannot be written any more. Calls `tell` with it and errno.
  int failures_fd() const { return failures_.get(); }
  void ReadFailures(absl::FunctionRef<void(int file, int error)> tell);
  // Ends the writer after it has written everything, waiting for at most `patience`. False if it did not end: the disk
  // is stalled. It then ends by itself if the disk comes back.
  bool Close(absl::Duration patience);
  pid_t pid() const { return pid_; }

 private:
  void Put(int file, absl::string_view bytes);

  Fd pipe_, failures_;
  pid_t pid_ = 0;
  std::string pending_;
  std::vector<size_t> left_out_;  // bytes, for each file
};

}  // namespace millrace::launch
