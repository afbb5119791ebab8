// The checkpoints of a directory as they appear, for programs that evaluate what another one trains.
//
//   CheckpointsIterator checkpoints("train", {.timeout = absl::Minutes(10)});
//   std::string checkpoint;
//   while (*checkpoints.Next(&checkpoint)) Evaluate(checkpoint);
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/train/named_wait.h"

namespace millrace {

struct CheckpointsIteratorOptions {
  // At least this long from one checkpoint to the next. Those that are no longer the newest by then are left out.
  absl::Duration min_interval = absl::ZeroDuration();
  // How long to wait for a new checkpoint.
  absl::Duration timeout = absl::InfiniteDuration();
  // Called when that time is over: true ends the iteration, false waits once more. Null: true.
  std::function<bool()> timeout_fn = nullptr;
  WaitSettings wait = {};
  FileSystem* files = FileSystem::Posix();
};

// Used by one thread at a time.
class CheckpointsIterator {
 public:
  explicit CheckpointsIterator(std::string directory, CheckpointsIteratorOptions options = {})
      : directory_(std::move(directory)), options_(std::move(options)) {}

  // Waits for a checkpoint that is newer than the last, and stores its prefix. Returns false after the timeout. Errors
  // are those of LatestCheckpoint and of the wait.
  StatusOr<bool> Next(std::string* checkpoint);

 private:
  const std::string directory_;
  const CheckpointsIteratorOptions options_;
  std::string last_;
  absl::Time returned_ = absl::InfinitePast();
};

// True if there is an intact checkpoint with this prefix.
bool CheckpointExists(const std::string& prefix, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
