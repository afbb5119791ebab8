// What rides along with each run of a MonitoredSession: checkpoints, summaries, logging, a stop at a step.
#pragma once

#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/train/coordinator.h"

namespace millrace {

// What a hook wants of the next run.
struct SessionRunArgs {
  std::vector<Output> fetches = {};
  ClientSession::Feeds feeds = {};
  bool trace = false;  // SessionRunValues::metadata gets step_stats
};

struct SessionRunContext {
  ClientSession* session = nullptr;
  // What the caller of Run fetches.
  const std::vector<Output>* fetches = nullptr;
  bool stop_requested = false;

  void RequestStop() { stop_requested = true; }
};

struct SessionRunValues {
  Tensors results = {};                  // of the hook's own fetches
  const RunMetadata* metadata = nullptr;  // null unless some hook asked for a trace
};

// A hook lives as long as its MonitoredSession and sees several sessions when one is lost and made anew. Called from one thread at a time. An error of any of
// these ends the run with it.
class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;
  // Once, before there is a session: the last time to add nodes.
  virtual Status Begin(const Scope& scope) { return absl::OkStatus(); }
  // For each session, when its variables have their values.
  virtual Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) { return absl::OkStatus(); }
  virtual StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) { return SessionRunArgs(); }
  // Not after a run that failed.
  virtual Status AfterRun(SessionRunContext* context, const SessionRunValues& values) { return absl::OkStatus(); }
  // Once, when the training ended well and the session is still there.
  virtual Status End(ClientSession* session) { return absl::OkStatus(); }
};

}  // namespace millrace
