// The launcher's event loop for one job. Internal; launcher.h is the interface.
#pragma once

#include <string>

#include "millrace/launch/dashboard_process.h"
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

  std::string Answer(const JobRequest& request) const;
  JobReport Report(int64_t events_after) const;
  void StartDashboard();
  // Shows what it has printed.
  void ReadDashboard();
  // Gives those who watch the job its last report.
  void EndWatching();
  // Waits until it has asked for the end of the job, if it has been started.
  void AwaitDashboard();
  // Ends it: on a terminal when the user asks for it, otherwise at once.
  void EndDashboard();
  Status OpenLogs();
  void TellLogFailures();
  // Makes the authority of the job's certificates.
  Status MakeAuthority();
  void MergeProfiles();
  void SayVerdict();

  JobState state_;
  JobState* const job_ = &state_;
  StatusDisplay display_{job_};
  HangInquiry inquiry_{job_};
  KeeperArrivals arrivals_{job_};
  TaskKeepers keepers_{job_, &display_, &inquiry_, &arrivals_};
  StatusOr<JobSocket> socket_ = Unavailable("not opened");
  DashboardProcess dashboard_;
  Fd signals_;
  absl::Time next_ping_ = absl::InfiniteFuture(), next_output_ = absl::InfinitePast();
  bool interrupted_ = false;  // the user asked for the end
  bool finished_ = false;
  int code_ = 1;
  std::string verdict_;
};

}  // namespace millrace::launch
