// Traces some of a training's steps, on all tasks that take part in them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/net/transport.h"
#include "millrace/train/session_run_hook.h"
#include "millrace/train/timeline.h"

namespace millrace {

struct ProfilerHookOptions {
  // Where parts of the timeline go; made when it is not there. MergeTimelines joins those of all workers.
  std::string directory = {};
  // Which runs: those that begin at these global steps ("100", or "100:105" without the last), or one in every so many steps or so much time. One of the
  // three is given. Where other workers take the global step past all of them between two runs, the run after is traced. In a graph without a
  // global step the runs of this hook are counted, from 0.
  std::string steps = {};
  int64_t every_steps = 0;
  absl::Duration every = absl::ZeroDuration();
  // Who runs the steps: "/job:worker/replica:0/task:0".
  std::string task = "/job:localhost/replica:0/task:0";
  // Any server of the cluster ("grpc://host:port"): the clocks of the tasks that took part are asked for after each traced run. Empty: they are estimated
  // from what the tasks sent to each other, which is less exact.
  std::string target = {};
  net::Transport* transport = nullptr;  // for these questions; gRPC without TLS when null. Outlives the hook.
  FileSystem* files = FileSystem::Posix();
  Clock* clock = Clock::Real();
};

// A run that is traced takes longer, and so does the pause after it; others cost the fetching of the global step while there are runs to come.
class ProfilerHook : public SessionRunHook {
 public:
  // INVALID_ARGUMENT for steps that are none, more or less than one of the three choices, or no directory.
  static StatusOr<std::unique_ptr<ProfilerHook>> Make(ProfilerHookOptions options);
  ~ProfilerHook() override;

  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  // What goes wrong with a clock or a file is logged: a training does not end because of it.
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

  // How many runs were traced so far.
  int64_t traced() const { return traced_; }

 private:
  struct Range {
    int64_t first = 0;
    int64_t last = 0;  // not included
  };
  ProfilerHook(ProfilerHookOptions options, std::optional<Range> range);
  bool Wanted() const;
  // Whether a step more or less makes a difference to what is traced next.
  bool IsNear() const;
  bool Done() const;
  void Write(const pb::StepStats& stats);
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

// What `millrace launch --profile_steps` asks for: null when MILLRACE_PROFILE_STEPS is not set. The task is that of TF_CONFIG, and so is `target` when it is
// empty. INVALID_ARGUMENT for steps that are none or a missing MILLRACE_PROFILE_DIR.
StatusOr<std::unique_ptr<SessionRunHook>> ProfilerHookFromEnvironment(const std::string& target = "");

}  // namespace millrace
