// The file `checkpoint` of a directory: which checkpoints it has, oldest first, and which is the newest. TensorFlow's, in text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

struct CheckpointState {
  struct Kept {
    std::string prefix;
    absl::Time time = absl::InfinitePast();  // of its saving; InfinitePast when the file does not say
  };
  std::string latest = {};
  std::vector<Kept> all = {};
  // When the newest was saved of those that are kept for ever.
  absl::Time last_preserved = absl::InfinitePast();
};

// Any bytes. INVALID_ARGUMENT says in which line something is wrong. Paths stay as they are written.
StatusOr<CheckpointState> ParseCheckpointState(absl::string_view text);
std::string FormatCheckpointState(const CheckpointState& state);

// NOT_FOUND when there is no such file, DATA_LOSS when it cannot be understood. Relative paths are put behind the directory.
StatusOr<CheckpointState> ReadCheckpointState(FileSystem* files, const std::string& directory, const std::string& filename = "checkpoint");
// Replaces the file at once, on the disk when this returns. Paths in the directory are written relative to it, so that it can be moved.
Status WriteCheckpointState(FileSystem* files, const std::string& directory, const CheckpointState& state, const std::string& filename = "checkpoint");

// OK when the checkpoint's index is whole and its data are as long as that says. NOT_FOUND when there is no index, DATA_LOSS and the like otherwise.
// Does not read the data.
Status CheckCheckpoint(FileSystem* files, const std::string& prefix);

}  // namespace millrace
