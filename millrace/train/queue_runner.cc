#include "millrace/train/queue_runner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "millrace/api/scope_state.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// The close or cancel op runs last, when servers may already be shutting down, so it gets a short timeout.
constexpr absl::Duration kLastOpTimeout = absl::Seconds(5);

// State that the threads of a started runner share.
struct Running {
  QueueRunnerOptions options;
  ClientSession* session = nullptr;
  Coordinator* coordinator = nullptr;
  RepeatedRuns* runs = nullptr;
  CancellationManager stop;
  Notification over;  // a stop was requested, or all threads have reached the end of their input
  Mutex mu;
  int threads ABSL_GUARDED_BY(mu) = 0;

  bool IsClosed(const Status& status) const {
    return std::find(options.closed_codes.begin(), options.closed_codes.end(), status.code()) !=
           options.closed_codes.end();
  }

  // Returns true for the last thread.
  bool EndThread() {
    MutexLock lock(&mu);
    return --threads == 0;
  }

  void RunLast(const Operation& op, const char* what) {
    Tensors none;
    const Status status = session->Run(RunOptions{.timeout = kLastOpTimeout}, {}, {}, {op}, &none, nullptr);
    if (!status.ok()) MR_LOG(Warning, options.name, ": ", what, " by ", op.name(), " failed: ", status.ToString());
  }

  // Ends when a stop cancels it.
  Status RunAgainAndAgain(const Step& step, const std::string& thread) {
    if (runs == nullptr) return step.callable().Repeat({.cancellation = &stop});
    RunIdentity run = runs->Begin(thread);
    Status status = step.callable().Repeat({.cancellation = &stop}, &run);
    runs->End(thread, run);
    return status;
  }

  Status Thread(const Step& step, const std::string& name) {
    const Status status = RunAgainAndAgain(step, name);
    const bool last = EndThread();
    const bool closed = !status.ok() && IsClosed(status);
    if (last && closed && !coordinator->ShouldStop() && !options.close_op.empty()) RunLast(options.close_op, "closing");
    if (last && closed) over.Notify();
    // A step cancelled by the stop is not an error, whatever closed_codes says.
    return closed || stop.IsCancelled() ? absl::OkStatus() : status;
  }
};

}  // namespace

RunIdentity RepeatedRuns::Begin(const std::string& op) {
  MutexLock lock(&mu_);
  OfOp& of_op = runs_[op];
  of_op.run.attempt = of_op.attempts++;
  return of_op.run;
}

void RepeatedRuns::End(const std::string& op, const RunIdentity& run) {
  MutexLock lock(&mu_);
  runs_[op].run = run;
}

void RepeatedRuns::Forget() {
  MutexLock lock(&mu_);
  runs_.clear();
}

Status QueueRunner::Start(ClientSession* session, Coordinator* coordinator, RepeatedRuns* runs) const {
  if (options_.enqueue_ops.empty()) return InvalidArgument("queue runner '", options_.name, "' has no ops to run");
  if (coordinator->ShouldStop())
    return FailedPrecondition("queue runner '", options_.name, "' was started after a stop was requested");
  auto running = std::make_shared<Running>();
  running->options = options_;
  running->session = session;
  running->coordinator = coordinator;
  running->runs = runs;
  std::vector<Step> steps;
  for (const Operation& op : options_.enqueue_ops) {
    StatusOr<Step> step = session->MakeStep({}, {}, {op});
    if (!step.ok()) return WithPrefix(absl::StrCat("queue runner '", options_.name, "': "), step.status());
    steps.push_back(*std::move(step));
  }
  {
    MutexLock lock(&running->mu);
    running->threads = static_cast<int>(steps.size());
  }
  coordinator->OnStop([weak = std::weak_ptr<Running>(running)] {
    if (const auto running = weak.lock()) {
      running->over.Notify();
      running->stop.StartCancel();
    }
  });
  // A thread may fail before the others have started; the coordinator reports that.
  const auto start = [&](std::string name, absl::AnyInvocable<Status()> body) -> Status {
    const Status status = coordinator->Start(std::move(name), std::move(body));
    return coordinator->ShouldStop() ? absl::OkStatus() : status;
  };
  if (!options_.cancel_op.empty()) {
    MR_RETURN_IF_ERROR(start(absl::StrCat(options_.name, "/cancel"), [running] {
      running->over.Wait();
      if (running->coordinator->ShouldStop()) running->RunLast(running->options.cancel_op, "cancelling");
      return absl::OkStatus();
    }));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    std::string name = steps.size() == 1 ? options_.name : absl::StrCat(options_.name, "/", i);
    // Runners may have the same name.
    std::string identity = absl::StrCat(name, "/", options_.enqueue_ops[i].name(), "/", i);
    MR_RETURN_IF_ERROR(start(std::move(name), [running, step = std::move(steps[i]), identity = std::move(identity)] {
      return running->Thread(step, identity);
    }));
  }
  return absl::OkStatus();
}

namespace {

// A runner as stored in the graph: without Operations, which would keep the graph alive.
struct RunnerOfGraph {
  std::string name;
  std::vector<Node*> enqueue_ops;
  Node* close_op = nullptr;
  Node* cancel_op = nullptr;
  std::vector<absl::StatusCode> closed_codes;
};
using RunnersOfGraph = std::vector<RunnerOfGraph>;

constexpr char kCollection[] = "queue_runners";

}  // namespace

void AddQueueRunner(const Scope& scope, const QueueRunner& runner) {
  const QueueRunnerOptions& options = runner.options();
  std::vector<Node*> ops;
  for (const Operation& op : options.enqueue_ops) {
    if (op.empty()) return scope.UpdateStatus(InvalidArgument("queue runner '", options.name, "' has an empty op"));
    ops.push_back(op.node());
  }
  std::shared_ptr<void>& collection = api_internal::StateOf(scope).collections[kCollection];
  if (collection == nullptr) collection = std::make_shared<RunnersOfGraph>();
  static_cast<RunnersOfGraph*>(collection.get())
      ->push_back(
          {options.name, std::move(ops), options.close_op.node(), options.cancel_op.node(), options.closed_codes});
}

std::vector<QueueRunner> QueueRunners(const Scope& scope) {
  std::vector<QueueRunner> runners;
  const auto& collections = api_internal::StateOf(scope).collections;
  const auto it = collections.find(kCollection);
  if (it == collections.end()) return runners;
  const auto handle = [&](Node* node) { return node == nullptr ? Operation() : Operation(scope, node); };
  for (const RunnerOfGraph& kept : *static_cast<const RunnersOfGraph*>(it->second.get())) {
    QueueRunnerOptions options{.name = kept.name,
                               .enqueue_ops = {},
                               .close_op = handle(kept.close_op),
                               .cancel_op = handle(kept.cancel_op),
                               .closed_codes = kept.closed_codes};
    for (Node* node : kept.enqueue_ops) options.enqueue_ops.push_back(handle(node));
    runners.emplace_back(std::move(options));
  }
  return runners;
}

Status StartQueueRunners(const Scope& scope, ClientSession* session, Coordinator* coordinator, RepeatedRuns* runs) {
  for (const QueueRunner& runner : QueueRunners(scope)) MR_RETURN_IF_ERROR(runner.Start(session, coordinator, runs));
  return absl::OkStatus();
}

}  // namespace millrace
