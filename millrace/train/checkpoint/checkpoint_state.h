// The file `checkpoint` of a directory, which lists its checkpoints, oldest first, and names the newest: TensorFlow's
// CheckpointState in text form.
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
    absl::Time time = absl::InfinitePast();  // when it was saved; InfinitePast if the file does not say
  };
  std::string latest = {};
  std::vector<Kept> all = {};
  // When the newest of the checkpoints that are kept for ever was saved.
  absl::Time last_preserved = absl::InfinitePast();
};

// Accepts any bytes. INVALID_ARGUMENT names the line with the error. Paths are not resolved.
StatusOr<CheckpointState> ParseCheckpointState(absl::string_view text);
std::string FormatCheckpointState(const CheckpointState& state);

// NOT_FOUND if there is no such file, DATA_LOSS if it cannot be parsed. Relative paths are joined to the directory.
StatusOr<CheckpointState> ReadCheckpointState(FileSystem* files, const std::string& directory,
                                              const std::string& filename = "checkpoint");
// Replaces the file atomically and durably. Paths within the directory are written relative to it, so that the
// directory can be moved.
Status WriteCheckpointState(FileSystem* files, const std::string& directory, const CheckpointState& state,
                            const std::string& filename = "checkpoint");

// OK if the checkpoint's index is intact and the data files have the lengths that the index states. NOT_FOUND if there
// is no index, otherwise DATA_LOSS or a similar error. Does not read the data.
Status CheckCheckpoint(FileSystem* files, const std::string& prefix);

}  // namespace millrace
