// A session for a scope's graph, with feeds, fetches and targets given as Outputs and Operations instead of names.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/api/output.h"
#include "millrace/session/session.h"

namespace millrace {

// The results of a run, in the order of the fetches.
using Tensors = std::vector<Tensor>;

// A precompiled step; see ClientSession::MakeStep. Thread-safe.
class Step {
 public:
  // `feeds` are in the order given to MakeStep.
  StatusOr<Tensors> operator()(const std::vector<Tensor>& feeds = {}) const {
    Tensors results;
    MR_RETURN_IF_ERROR(callable_->Run(feeds, &results));
    return results;
  }
  Callable& callable() const { return *callable_; }

 private:
  friend class ClientSession;
  explicit Step(std::unique_ptr<Callable> callable) : callable_(std::move(callable)) {}
  std::unique_ptr<Callable> callable_;
};

// Runs a scope's graph. Ops built after the session was created are included in the next run. Concurrent runs are safe;
// building the graph while a run is in progress is not.
class ClientSession {
 public:
  using Feeds = std::vector<std::pair<Output, Tensor>>;

  // Returns the scope's error if building the graph failed.
  static StatusOr<ClientSession> Create(const Scope& scope, const SessionOptions& options = {});

  // session.Run({{x, batch}}, {loss}, {train}); see Session::Run for errors.
  StatusOr<Tensors> Run(const Feeds& feeds, const std::vector<Output>& fetches,
                        const std::vector<Operation>& targets = {});
  StatusOr<Tensors> Run(const std::vector<Output>& fetches) { return Run(Feeds{}, fetches); }
  // A template, so that Run({y}) resolves to fetches.
  template <typename T, std::enable_if_t<std::is_same_v<T, Operation>, int> = 0>
  Status Run(const T& target) {
    return Run(Feeds{}, {}, {target}).status();
  }
  Status Run(const RunOptions& options, const Feeds& feeds, const std::vector<Output>& fetches,
             const std::vector<Operation>& targets, Tensors* results, RunMetadata* metadata);

  // Compiles a step that is run repeatedly.
  StatusOr<Step> MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets = {});

  Session& session() const { return *session_; }
  // Sends the nodes built since the last run to the session, for callers that use session() directly.
  Status Prepare() { return Extend(); }

 private:
  ClientSession(Scope scope, std::unique_ptr<Session> session);
  // Sends the nodes that the session does not have yet.
  Status Extend();

  Scope scope_;
  std::unique_ptr<Session> session_;
  struct Known;
  std::shared_ptr<Known> known_;  // the part of the graph that the session has
};

}  // namespace millrace
