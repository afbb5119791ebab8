// The process between the launcher and one task, on the task's machine.
//
// It reserves a port, starts the program on request, sends back its output, progress and exit status, and ensures that
// no process is left behind when the program has ended, when it is told to kill, or when the launcher is gone (its pipe
// was closed, or it was silent for too long). Every process that the program starts remains a descendant of the keeper
// (process_tree.h).
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "millrace/launch/meeting/sealed_channel.h"

namespace millrace::launch {

struct KeeperOptions {
  int in = 0, out = 1;  // descriptors for frames (keeper_frame.h) from and to the launcher
  // How long the launcher may be silent before it counts as gone, as when its machine has failed. Infinite if its end
  // is always noticed.
  absl::Duration silence = absl::InfiniteDuration();
  // The time between SIGTERM and SIGKILL when the keeper itself ends processes.
  absl::Duration grace = absl::Seconds(2);
  // Names the job and the task: an earlier keeper of the same name on this machine is ended first (task_claim.h). May
  // be empty.
  std::string claim = {};
  // For a keeper that a scheduler started, and that came to its launcher's meeting (meeting/join_meeting.h): `in` and
  // `out` are the connection, in sealed records, of which `received` has been opened already. Signals that ask the
  // keeper to end go to the launcher, and the exit code is the one that the launcher gives.
  std::shared_ptr<SealedChannel> channel = nullptr;
  std::string received = {};
  // Whether what the program prints also goes to this process's own stdout and stderr.
  bool echo = false;
};

// Runs until no process of the task is left, and returns the exit code for the keeper's process. The process must have
// one thread; its signals, children and descriptors belong to the keeper. A guard process above it ends what is left if
// the keeper itself is killed.
int RunKeeper(const KeeperOptions& options);

}  // namespace millrace::launch
