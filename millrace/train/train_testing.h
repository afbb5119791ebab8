// Models and hooks for the tests of this folder. For tests only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/millrace.h"
#include "millrace/train/hooks/hooks.h"
#include "millrace/train/monitored_training_session.h"

namespace millrace {

// A training op that adds one to `w` and to the global step, so both show how many steps were run and kept.
struct CountingModel {
  explicit CountingModel(Scope s = Scope::NewRoot()) : scope(std::move(s)) {
    w = Var(scope, "w", 0.0f);
    global_step = GlobalStep(scope);
    train = Group(scope.WithOpName("train"), {w.AssignAdd(scope, 1.0f), global_step.AssignAdd(scope, int64_t{1})});
  }
  // The model as a worker of a cluster with `ps_tasks` parameter servers builds it.
  static CountingModel OfWorker(int worker, int ps_tasks = 1) {
    return CountingModel(Scope::NewRoot().WithDeviceFunction(
        ReplicaDeviceSetter({.ps_tasks = ps_tasks, .worker_device = absl::StrCat("/job:worker/task:", worker)})));
  }

  Scope scope;
  Var w;
  Var global_step;
  Operation train;
};

inline std::shared_ptr<StopAtStepHook> StopAt(int64_t step) {
  return std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = step});
}

// Records the calls that it gets.
class RecordingHook : public SessionRunHook {
 public:
  Status Begin(const Scope&) override { return Note("begin"); }
  Status AfterCreateSession(ClientSession*, Coordinator*) override { return Note("created"); }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext*) override {
    MR_RETURN_IF_ERROR(Note("before"));
    return SessionRunArgs{.fetches = fetches};
  }
  Status AfterRun(SessionRunContext*, const SessionRunValues& values) override {
    results = values.results;
    return Note("after");
  }
  Status End(ClientSession*) override { return Note("end"); }

  std::vector<Output> fetches;
  Tensors results;
  std::vector<std::string> seen;
  // The call to fail at, and the error.
  std::string fail_at;
  Status failure = absl::OkStatus();
  bool fail_once = false;

 private:
  Status Note(std::string what) {
    seen.push_back(what);
    if (what != fail_at) return absl::OkStatus();
    if (fail_once) fail_at.clear();
    return failure;
  }
};

}  // namespace millrace
