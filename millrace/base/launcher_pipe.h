// Lines that a launched program writes to its launcher, on the descriptor in MILLRACE_PROGRESS_FD. What they say is in
// train/progress.h.
#pragma once

#include "absl/strings/string_view.h"

namespace millrace {

enum class LauncherLine {
  kMayBeDropped,  // never waits: dropped if the launcher does not read in time
  kMatters,       // waits up to a second for the launcher to read
};

// Whether there is a launcher that listens.
bool HasLauncher();

// Writes `line`, which has no newline and is short enough that a pipe takes it whole. Does nothing without a launcher.
// A launcher that has disappeared does no harm: there is no SIGPIPE. Thread-safe.
void TellLauncher(absl::string_view line, LauncherLine importance);

}  // namespace millrace
