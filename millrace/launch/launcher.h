// A job from its start to its end: keepers, output, status, and one line that says what went wrong.
#pragma once

#include <string>
#include <vector>

#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/keeper_link.h"

namespace millrace::launch {

struct LauncherOptions {
  JobSpec job = {};
  std::string command = {};  // as its user typed it
  RemoteOptions remote = {};
  bool host_flags = false;  // --ps_hosts and its kin go to the program
  std::vector<std::string> environment = {};  // of all programs, "NAME=VALUE", over the launcher's (on other hosts: over ssh's)
  std::string log_dir = {};                   // where each task's output is kept too; empty: nowhere
  std::string profile_steps = {}, profile_dir = {};
  bool colour = false;
  bool live = false;   // stdout is a terminal that shows status lines
  bool quiet = false;  // nothing of the launcher's own but what went wrong
  HangWatchOptions hang = {};
  absl::Duration start_timeout = absl::Seconds(30);  // for a keeper to come up
};

// Runs the job and returns the exit code: 0 when all tasks that it waits for succeeded, that of the task that failed first (128 + N for signal N), 130 after
// Ctrl-C, 1 when a task was lost. When it returns, nothing of the job is left. Signals and children of the process are its own
// meanwhile; the process has one thread.
int RunLauncher(const LauncherOptions& options);

}  // namespace millrace::launch
