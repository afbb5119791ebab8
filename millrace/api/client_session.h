// A session over a scope: feeds, fetches and targets by handle instead of by name.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/api/output.h"
#include "millrace/session/session.h"

namespace millrace {

// Results of a run, in the order of the fetches.
using Tensors = std::vector<Tensor>;

// A step compiled once; see ClientSession::MakeStep. Thread-safe.
class Step {
 public:
  // `feeds` in the order that MakeStep was given.
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

// Runs a scope's graph. Ops built after the session was made are picked up by the next run;
// building and running at the same time is not safe, several runs at once are.
class ClientSession {
 public:
  using Feeds = std::vector<std::pair<Output, Tensor>>;

  // The scope's own error when building the graph failed.
  static StatusOr<ClientSession> Create(const Scope& scope, const SessionOptions& options = {});

  // session.Run({{x, batch}}, {loss}, {train}); see Session::Run for the errors.
  StatusOr<Tensors> Run(const Feeds& feeds, const std::vector<Output>& fetches,
                        const std::vector<Operation>& targets = {});
  StatusOr<Tensors> Run(const std::vector<Output>& fetches) { return Run(Feeds{}, fetches); }
  // A template, so that Run({y}) means fetches.
  template <typename T, std::enable_if_t<std::is_same_v<T, Operation>, int> = 0>
  Status Run(const T& target) {
    return Run(Feeds{}, {}, {target}).status();
  }
  Status Run(const RunOptions& options, const Feeds& feeds, const std::vector<Output>& fetches,
             const std::vector<Operation>& targets, Tensors* results, RunMetadata* metadata);

  // Compiles a step to run often.
  StatusOr<Step> MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets = {});

  Session& session() const { return *session_; }
  // Hands over what was built since the last run, for those that use session() itself.
  Status Prepare() { return Extend(); }

 private:
  ClientSession(Scope scope, std::unique_ptr<Session> session);
  // Hands over the nodes that the session does not know yet.
  Status Extend();

  Scope scope_;
  std::unique_ptr<Session> session_;
  struct Known;
  std::shared_ptr<Known> known_;  // what the session knows of the graph
};

}  // namespace millrace
