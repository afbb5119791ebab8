// A Chrome trace of the operations: a row for each tensor, with its negotiation and its exchange.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace::hvd {

// Written as it goes, so that the trace of a program that was killed is there too: the array is not closed, which trace
// viewers accept. A disk that is full ends the trace with a log line. Not thread-safe.
class OperationTrace {
 public:
  static StatusOr<std::unique_ptr<OperationTrace>> Open(const std::string& path, absl::Time origin);
  ~OperationTrace();

  // `event` of the tensor `name`: "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER". `args` are the members
  // of a JSON object.
  void Add(const std::string& name, const std::string& event, absl::Time begin, absl::Time end,
           const std::string& args = "");
  // Once in a round.
  void Flush();

 private:
  OperationTrace(std::string path, std::unique_ptr<WritableFile> file, absl::Time origin);

  const std::string path_;
  const absl::Time origin_;
  std::unique_ptr<WritableFile> file_;  // null after an error
  std::string buffer_;
  absl::flat_hash_map<std::string, int> rows_;
};

}  // namespace millrace::hvd
