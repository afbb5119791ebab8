// The launcher's event loop for one job. Internal; launcher.h is the interface.
#pragma once

#include <string>

#include "millrace/launch/hang_inquiry.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/job_socket.h"
#include "millrace/launch/job_state.h"
#include "millrace/launch/status_display.h"
#include "millrace/launch/task_keepers.h"

namespace millrace::launch {

// Single-threaded. Blocks in one place only (Poll), for descriptors and the next timer; everything else reacts to
// events.
class JobRun {
 public:
  explicit JobRun(const LauncherOptions& options) : state_(options) {}
  int Run();

 private:
  // Carries out the actions that Supervision asks for.
  void Perform();
  void Poll(absl::Time until);
  absl::Time NextTimer() const;
  void OnTimer();

  void OnSignals();
  void Suspend();
  void ReapChildren();

  JobReport Report() const;
  Status OpenLogs();
  void TellLogFailures();
  // Makes the authority of the job's certificates.
  Status MakeAuthority();
  void MergeProfiles();

  JobState state_;
  JobState* const job_ = &state_;
  StatusDisplay display_{job_};
  HangInquiry inquiry_{job_};
  TaskKeepers keepers_{job_, &display_, &inquiry_};
  StatusOr<JobSocket> socket_ = Unavailable("not opened");
  Fd signals_;
  absl::Time next_ping_ = absl::InfiniteFuture(), next_output_ = absl::InfinitePast();
  bool finished_ = false;
  int code_ = 1;
  std::string verdict_;
};

}  // namespace millrace::launch
