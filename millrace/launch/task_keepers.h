// The keepers of a job's tasks, and the messages to and from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "millrace/launch/hang_inquiry.h"
#include "millrace/launch/job_state.h"
#include "millrace/launch/keeper_arrivals.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/status_display.h"

namespace millrace::launch {

// Reports the tasks' events to Supervision and shows their output. Single-threaded; the constructor's arguments must
// outlive it.
class TaskKeepers {
 public:
  TaskKeepers(JobState* job, StatusDisplay* display, HangInquiry* inquiry, KeeperArrivals* arrivals)
      : job_(job), display_(display), inquiry_(inquiry), arrivals_(arrivals) {}

  // If `adopts`, orphaned descendants become children of this process, and are ended with their keepers.
  void set_adopts(bool adopts) { adopts_ = adopts; }
  // Its process is not a stray of a task; 0: there is none.
  void set_dashboard(pid_t pid) { dashboard_ = pid; }
  // Assigns cores to the workers, once the cores of all machines are known.
  Status BindWorkers();

  // Requests a keeper for the task; OpenWanted starts it when another connection may be opened.
  void Want(int task) { wanted_.push_back(task); }
  void OpenWanted();
  void StartProgram(int task);
  // Sends a frame to the task's keeper, if it has one.
  void Send(int task, KeeperFrameKind kind, absl::string_view body);
  void SendToAll(KeeperFrameKind kind, absl::string_view body);

  void OnFrame(int task, const KeeperFrame& frame);
  // The task's keeper is gone; `why` is the reason, if it is known.
  void Lose(int task, std::string why);
  // Ends all keepers and their remaining descendants. While it waits, calls `on_signals` whenever `signals` is
  // readable.
  // `code` is that of the job.
  void End(int signals, int code, absl::FunctionRef<void()> on_signals);

 private:
  // Adds what the program's servers and sessions need to reach each other, and nobody else them.
  Status AddAccess(const LaunchedTask& task, const TaskGroup& group, StartFrame* start) const;
  void OnOutput(int task, bool error, absl::string_view bytes);
  void OnLine(int task, bool error, absl::string_view line);
  void FlushLines(int task);
  void OnProgress(int task, const TrainingProgress& progress, bool told);
  void KillStrays();
  // The addresses of the cluster and the GPUs of each task, once all keepers are there.
  void MakeCluster();
  bool ShowsOutput(int task) const;

  JobState* const job_;
  StatusDisplay* const display_;
  HangInquiry* const inquiry_;
  KeeperArrivals* const arrivals_;
  bool adopts_ = false;
  pid_t dashboard_ = 0;
  std::vector<int> wanted_;
  std::vector<std::optional<std::string>> gpus_;  // CUDA_VISIBLE_DEVICES to set
};

}  // namespace millrace::launch
