// Runs a job from start to end: its keepers, output and status, and one line that says what went wrong.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/meeting/meeting_point.h"

namespace millrace::launch {

// Keepers that a scheduler starts: they come to a meeting place of the launcher.
struct MeetingLaunch {
  MeetingPoint point = {};
  std::string address = {};  // under which other hosts reach this one
  // The task of this process (`millrace place`), whose keeper the launcher starts itself. The other keepers come when
  // the scheduler has started them, and show their programs' output themselves. -1: none; then `step` starts them.
  int own_task = -1;
  // The process that started this one: when it has ended, so does the job. 0: it does not matter.
  int parent = 0;
  std::vector<std::string> step = {};  // `srun` with its flags, without those that depend on the tasks
};

struct LauncherOptions {
  JobSpec job = {};
  std::optional<MeetingLaunch> meeting = std::nullopt;
  bool share_gpus = false;   // tasks of a host that see the same GPUs get a part of them each (gpu_shares.h)
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
  // Runs a dashboard of the job beside it, `millrace dashboard` with these flags.
  bool dashboard = false;
  std::vector<std::string> dashboard_flags = {};
  std::string log_dir = {};  // if not empty, each task's output is also written to a file there
  std::string profile_steps = {}, profile_dir = {};
  // Joins what programs have written into `profile_dir` and returns the file's path: MergeTimelines. Needed only with
  // `profile_steps`.
  std::function<StatusOr<std::string>(const std::string& directory)> merge_profiles = nullptr;
  int notice_signal = SIGTERM;  // besides SIGTERM, ends the job in order (Supervision::OnNotice)
  // A job that a notice has ended is started again by its scheduler (requeue.h).
  bool requeue = false;
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
