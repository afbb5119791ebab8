// The process that stands between the launcher and one task, on the task's machine.
//
// It holds a port, starts the program when it is told to, carries its output, progress and end back, and sees to it that nothing is left of it: not when
// the program has ended, not when it is told to kill, and not when the launcher is gone (its pipe has ended, or it was silent for too long).
// Everything that the program starts stays below the keeper, whatever it does (process_tree.h).
#pragma once

#include "absl/time/time.h"

namespace millrace::launch {

struct KeeperOptions {
  int in = 0, out = 1;  // frames (frame.h) from and to the launcher
  // The launcher counts as gone after this silence: it may have vanished with its machine. Infinite where its end is always seen.
  absl::Duration silence = absl::InfiniteDuration();
  // Between SIGTERM and SIGKILL where the keeper ends processes by itself.
  absl::Duration grace = absl::Seconds(2);
};

// Returns the exit code of the keeper's process when nothing is left to keep. The process has one thread; its signals, children and descriptors belong to
// the keeper. A guard process stays above it, which ends what is left should the keeper itself be killed.
int RunKeeper(const KeeperOptions& options);

}  // namespace millrace::launch
