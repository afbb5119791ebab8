// Traces selected steps of a training, on all tasks that take part in them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

class TimelinePart;
namespace net {
class Transport;
}

struct ProfilerHookOptions {
  // Where parts of the timeline are written; created if needed. MergeTimelines joins the parts of all workers.
  std::string output_dir = {};
  // Which runs to trace; give one of the three. `steps` traces the runs that begin at these global steps ("100", or
  // "100:105" with the end excluded); if other workers advance the global step past all of them between two runs, the
  // next run is traced. `every_steps` and `every` trace one run per interval. If the graph has no global step, the hook
  // counts its runs from 0.
  std::string steps = {};
  int64_t every_steps = 0;
  absl::Duration every = absl::ZeroDuration();
  // The task that runs the steps: "/job:worker/replica:0/task:0".
  std::string task = "/job:localhost/replica:0/task:0";
  // Any server of the cluster ("grpc://host:port"), through which the clocks of the participating tasks are measured
  // after each traced run. If empty, clock offsets are estimated from the messages between the tasks, which is less
  // exact.
  std::string target = {};
  net::Transport* transport = nullptr;  // for these measurements; null: gRPC without TLS. Must outlive the hook.
  FileSystem* files = FileSystem::Posix();
  Clock* clock = Clock::Real();
};

// A traced run is slower, and so is the pause after it. Other runs only fetch the global step, as long as there are
// runs left to trace.
class ProfilerHook : public SessionRunHook {
 public:
  // INVALID_ARGUMENT for malformed `steps`, for more or fewer than one of the three choices, or without an output_dir.
  static StatusOr<std::unique_ptr<ProfilerHook>> Make(ProfilerHookOptions options);
  ~ProfilerHook() override;

  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  // Failures to measure a clock or to write a file are logged and do not end the training.
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

  // The number of runs traced so far.
  int64_t traced() const { return traced_; }

 private:
  struct Range {
    int64_t first;
    int64_t last;  // exclusive
  };
  ProfilerHook(ProfilerHookOptions options, std::optional<Range> range);
  bool Wanted() const;
  // Whether the next step may be one to trace, so that the exact global step matters.
  bool IsNear() const;
  bool Done() const;
  void Write(const ::tensorflow::StepStats& stats);
  void MeasureClocks(TimelinePart* part);

  const ProfilerHookOptions options_;
  const std::optional<Range> range_;
  std::unique_ptr<net::Transport> own_transport_;
  Output global_step_;
  int64_t step_ = 0;  // as of the last run
  bool tracing_ = false;
  absl::Time begun_;
  int64_t traced_ = 0;
  int64_t last_traced_step_ = 0;
  absl::Time last_traced_;
};

// The hook that `millrace launch --profile_steps` asks for (see merge_timelines.h); null if MILLRACE_PROFILE_STEPS is
// not set. The task comes from TF_CONFIG, as does `target` if it is empty. INVALID_ARGUMENT for malformed steps or a
// missing MILLRACE_PROFILE_DIR.
StatusOr<std::unique_ptr<SessionRunHook>> ProfilerHookFromEnvironment(const std::string& target = "");

}  // namespace millrace
