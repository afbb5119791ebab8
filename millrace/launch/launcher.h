// Runs a job from start to end: its keepers, output and status, and one line that says what went wrong.
#pragma once

#include <string>
#include <vector>

#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/keeper_link.h"

namespace millrace::launch {

struct LauncherOptions {
  JobSpec job = {};
  std::string command = {};  // the command line as typed by the user
  RemoteOptions remote = {};
  bool host_flags = false;  // pass --ps_hosts, --worker_hosts, --job_name and --task_index to the program
  // "NAME=VALUE", added to the environment of every program: the launcher's, or that of ssh on other hosts.
  // Neither certificates nor encryption; otherwise the job gets a certificate authority of its own.
  bool insecure = false;
  // The directories in which the tasks' servers let graphs use files. If empty: all files, or for servers that other
  // machines can reach without certificates none.
  std::vector<std::string> file_roots = {};
  std::vector<std::string> environment = {};
  std::string log_dir = {};  // if not empty, each task's output is also written to a file there
  std::string profile_steps = {}, profile_dir = {};
  bool colour = false;
  bool live = false;   // stdout is a terminal and shows status lines
  bool quiet = false;  // the launcher itself prints only what went wrong
  HangWatchOptions hang = {};
  absl::Duration start_timeout = absl::Seconds(30);  // for a keeper to come up
};

// Runs the job and returns the exit code: 0 if all tasks that it waits for succeeded, the code of the task that failed
// first (128 + N for signal N), 130 after Ctrl-C, 1 if a task was lost. When it returns, no process of the job is left.
// It takes over the signals and children of the process, which must have one thread.
int RunLauncher(const LauncherOptions& options);

}  // namespace millrace::launch
