// What all kinds of sessions have in common, wherever their steps run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/session/session.h"

namespace millrace {

// The base class of all sessions: completes tensor names ("x" becomes "x:0"), tracks which nodes and functions the
// session already has, and lets one caller at a time extend it. Subclasses get complete names.
class BaseSession : public Session {
 public:
  using Session::Run;
  Status Extend(pb::GraphDef def) final;
  Status Extend(const Graph& graph) final;
  Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
             absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) final;
  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) final;
  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds, absl::Span<const std::string> fetches,
                                        absl::Span<const std::string> targets) final;
  Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                    std::vector<Tensor>* results) final;
  // The default: no devices in this process.
  std::vector<Device*> ListDevices() const override { return {}; }

 protected:
  explicit BaseSession(const SessionOptions& options) : options_(options) {}

  const SessionOptions& options() const { return options_; }
  // The run's timeout if it has one, otherwise the session's.
  absl::Duration TimeoutOf(const RunOptions& options) const;

  // Adds nodes and functions, all or none. Called within a turn (InTurn): no other caller is in Add, and no lock is
  // held.
  virtual Status Add(pb::GraphDef fresh) = 0;
  virtual Status RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options,
                         std::vector<Tensor>* results, RunMetadata* metadata) = 0;
  virtual StatusOr<std::unique_ptr<Callable>> Compile(CallableSpec spec) = 0;
  virtual StatusOr<std::string> SetUpPartial(CallableSpec spec) = 0;
  virtual Status RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                            std::vector<Tensor>* results) = 0;

  // Waits for exclusive access to the graph (a turn) and holds it while `body` runs. Must not be nested.
  Status InTurn(absl::FunctionRef<Status()> body);

 private:
  // Calls Add and records what was added. Called within a turn.
  Status AddAndNote(pb::GraphDef fresh);

  const SessionOptions options_;
  Mutex mu_;
  CondVar turn_ended_;
  bool in_turn_ ABSL_GUARDED_BY(mu_) = false;
  // The names of what the session has. Accessed only within a turn.
  absl::flat_hash_set<std::string> nodes_;
  absl::flat_hash_set<std::string> functions_;
};

}  // namespace millrace
