#include "millrace/train/checkpoint/checkpoints_iterator.h"

#include "absl/strings/str_cat.h"
#include "millrace/train/checkpoint/checkpoint_state.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

StatusOr<bool> CheckpointsIterator::Next(std::string* checkpoint) {
  if (options_.timeout < absl::ZeroDuration() || options_.min_interval < absl::ZeroDuration()) {
    return InvalidArgument("CheckpointsIterator: the timeout is ", absl::FormatDuration(options_.timeout),
                           " and min_interval ", absl::FormatDuration(options_.min_interval),
                           "; a time cannot be negative");
  }
  Clock* const clock = options_.wait.clock;
  // The interval does not count as waiting for a checkpoint.
  NamedWait pause("the reader of checkpoints", options_.wait, absl::InfiniteDuration(), nullptr);
  while (clock->Now() < returned_ + options_.min_interval) {
    MR_RETURN_IF_ERROR(pause.Again(absl::StrCat("the interval of ", absl::FormatDuration(options_.min_interval))));
  }
  while (true) {
    NamedWait wait("the reader of checkpoints", options_.wait, absl::InfiniteDuration(), nullptr);
    while (true) {
      MR_ASSIGN_OR_RETURN(std::string newest, LatestCheckpoint(directory_, "checkpoint", options_.files));
      if (!newest.empty() && newest != last_) {
        last_ = *checkpoint = std::move(newest);
        returned_ = clock->Now();
        return true;
      }
      if (wait.waited() >= options_.timeout) break;
      MR_RETURN_IF_ERROR(wait.Again(absl::StrCat("a new checkpoint in ", directory_)));
    }
    if (options_.timeout_fn == nullptr || options_.timeout_fn()) return false;
  }
}

bool CheckpointExists(const std::string& prefix, FileSystem* files) { return CheckCheckpoint(files, prefix).ok(); }

}  // namespace millrace
