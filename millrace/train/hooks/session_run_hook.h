// The interface of hooks, which a MonitoredSession calls around each run: for checkpoints, summaries, logging,
// stopping.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/train/coordinator.h"

namespace millrace {

// What a hook adds to the next run.
struct SessionRunArgs {
  std::vector<Output> fetches = {};
  ClientSession::Feeds feeds = {};
  bool trace = false;  // SessionRunValues::metadata gets step_stats
};

struct SessionRunContext {
  ClientSession* session = nullptr;
  // The fetches of Run's caller.
  const std::vector<Output>* fetches = nullptr;
  bool stop_requested = false;

  void RequestStop() { stop_requested = true; }
};

struct SessionRunValues {
  Tensors results = {};                   // the hook's own fetches
  const RunMetadata* metadata = nullptr;  // null unless some hook asked for a trace
};

// A hook lives as long as its MonitoredSession, which may recreate its session several times. Methods are called by one
// thread at a time. An error from any of them is returned by the run.
class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;
  // Called once, before there is a session. The last chance to add nodes to the graph.
  virtual Status Begin(const Scope& scope) { return absl::OkStatus(); }
  // Called for each session, when its variables are initialised.
  virtual Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) { return absl::OkStatus(); }
  // Whether AfterCreateSession replaces the values that the variables have got, by those of another worker.
  virtual bool GivesValues() const { return false; }
  virtual StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) { return SessionRunArgs(); }
  // Not called if the run failed.
  virtual Status AfterRun(SessionRunContext* context, const SessionRunValues& values) { return absl::OkStatus(); }
  // Whether a step waits for those of the other workers. On a notice (base/notice.h) the workers of such a training end
  // it together: the chief after the step in hand, the others because of that.
  virtual bool StepsTogether() const { return false; }
  // Whether such a step can be cancelled while it waits, without a trace in the variables.
  virtual bool CancelledStepLeavesNoTrace() const { return false; }
  // A notice ends the training: bring to safety what would be lost. Called once, after the last run and before End.
  // Returns the name of the checkpoint that has been saved; empty if the hook saves none.
  virtual StatusOr<std::string> OnNotice(ClientSession* session) { return std::string(); }
  // Called once, if the training ended without an error, while the session is still open.
  virtual Status End(ClientSession* session) { return absl::OkStatus(); }
};

using Hooks = std::vector<std::shared_ptr<SessionRunHook>>;

}  // namespace millrace
