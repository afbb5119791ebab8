// What the parts of a launcher share: the job, its tasks and the terminal.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/base/clock.h"
#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_events.h"
#include "millrace/launch/launched_task.h"
#include "millrace/launch/launcher.h"
#include "millrace/launch/log_files.h"
#include "millrace/launch/supervision.h"
#include "millrace/launch/task_place.h"
#include "millrace/launch/terminal_output.h"
#include "millrace/net/tls/certificate_authority.h"

namespace millrace::launch {

// Keepers and hang queries run this same program, even if its file has been replaced or deleted since.
inline constexpr char kThisProgram[] = "/proc/self/exe";

// Single-threaded.
struct JobState {
  // `options` must outlive it.
  explicit JobState(const LauncherOptions& options);

  absl::Time Now() const { return Clock::Real()->Now(); }
  // A line of the launcher's own, on stderr.
  void Say(absl::string_view line) { output.Error(absl::StrCat("millrace: ", line, "\n")); }
  // The job is asked to end by a signal, to this process or to a keeper.
  void OnInterrupt(int signal);
  // This process got a notice.
  void OnNotice(int signal);

  // For the time line; `kind` as in JobEvent.
  void Note(absl::string_view kind, absl::string_view task, absl::string_view text) {
    events.Add(absl::ToDoubleSeconds(Now() - began), kind, task, text);
  }

  const LauncherOptions& options;
  const absl::Time began;
  Supervision supervision;
  std::vector<LaunchedTask> tasks;  // in the order of supervision.tasks()
  ClusterAddresses cluster;         // empty until the first program starts
  TerminalOutput output;
  HangWatch hang;
  LogFiles logs;
  JobEvents events;
  std::unique_ptr<net::CertificateAuthority> authority;  // null: the job has no certificates
  std::optional<TlsCredentials> client;                  // for questions to the tasks
  absl::Time interrupted = absl::InfinitePast();

 private:
  // Whether a signal belongs to the one before it.
  bool IsSameSignal();
};

}  // namespace millrace::launch
