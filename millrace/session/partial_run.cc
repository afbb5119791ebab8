// Steps in several calls, in this process.
#include <utility>

#include "millrace/runtime/step_resources.h"
#include "millrace/session/partial_step.h"
#include "millrace/session/running_step.h"

namespace millrace {
struct DirectSession::PartialStep {
  explicit PartialStep(DirectSession* session) : running(session) {}

  std::unique_ptr<Plan> plan;
  std::unique_ptr<PartialStepCalls> calls;

  RunningStep running;
  LocalRendezvous rendezvous;
  StepResources step_resources;
  StepContext step;
  RefPtr<StepArena> arena = MakeRef<StepArena>();
  Notification ended;

  Mutex mu;
  Status status ABSL_GUARDED_BY(mu);
};

StatusOr<std::string> DirectSession::PartialRunSetup(absl::Span<const std::string> feeds,
                                                     absl::Span<const std::string> fetches,
                                                     absl::Span<const std::string> targets) {
  auto partial = std::make_shared<PartialStep>(this);
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    graph = graph_.Clone();
  }
  CallableSpec spec;
  spec.feeds.assign(feeds.begin(), feeds.end());
  spec.fetches.assign(fetches.begin(), fetches.end());
  spec.targets.assign(targets.begin(), targets.end());
  std::vector<std::string> all_targets;
  MR_ASSIGN_OR_RETURN(partial->calls, PartialStepCalls::Prepare(graph.get(), spec, devices_[0]->name(),
                                                                devices_[0]->incarnation(), &all_targets));
  MR_ASSIGN_OR_RETURN(partial->plan, CompilePlan(std::move(graph), {.targets = std::move(all_targets)}));
  MR_RETURN_IF_ERROR(partial->running.Begin({}, absl::InfiniteDuration()));
  partial->step = NewStep(partial->running, &partial->step_resources);
  partial->step.inter_op = InterOpPool();
  partial->step.rendezvous = &partial->rendezvous;
  // Waiting feeds and fetches end with the step.
  const bool registered = partial->running.cancellation()->Register(
      partial->running.cancellation()->NewToken(),
      [p = partial.get()] { p->rendezvous.Abort(Cancelled("the partial run was cancelled")); });
  if (!registered) return Cancelled("the session is closed");
  std::string handle;
  {
    MutexLock lock(&steps_mu_);
    handle = absl::StrCat(next_partial_++);
    partial_steps_[handle] = partial;
  }
  partial->plan->RunAsync({.step = &partial->step, .allocator = partial->arena.get()}, {},
                          [p = partial.get()](Status status) {
                            if (!status.ok()) p->rendezvous.Abort(status);
                            {
                              MutexLock lock(&p->mu);
                              p->status = std::move(status);
                            }
                            p->ended.Notify();
                          });
  return handle;
}

std::shared_ptr<DirectSession::PartialStep> DirectSession::FindPartialStep(const std::string& handle) {
  MutexLock lock(&steps_mu_);
  const auto it = partial_steps_.find(handle);
  return it == partial_steps_.end() ? nullptr : it->second;
}

Status DirectSession::PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                                 absl::Span<const std::string> fetches, std::vector<Tensor>* results) {
  const std::shared_ptr<PartialStep> partial = FindPartialStep(handle);
  if (partial == nullptr) {
    return InvalidArgument("there is no partial run '", handle, "': it has ended or was never set up");
  }
  bool last = false;
  MR_RETURN_IF_ERROR(partial->calls->Begin(feeds, fetches, &last));
  Status status;
  for (const auto& [name, value] : feeds) {
    if (status.ok()) status = partial->rendezvous.Send(partial->calls->KeyOf(name), {value, false});
  }
  results->assign(fetches.size(), Tensor());
  for (size_t i = 0; status.ok() && i < fetches.size(); ++i) {
    Notification came;
    partial->rendezvous.Recv(partial->calls->KeyOf(fetches[i]), [&](StatusOr<RendezvousItem> item) {
      if (!item.ok()) {
        status = item.status();
      } else if (item->is_dead) {
        status = Internal("the fetched tensor ", fetches[i], " is dead: its branch was not taken");
      } else {
        (*results)[i] = std::move(item->tensor);
      }
      came.Notify();
    });
    came.Wait();
  }
  if (!status.ok() || last) {
    if (!status.ok()) partial->running.cancellation()->StartCancel(status);
    partial->ended.Wait();
    MutexLock partial_lock(&partial->mu);
    if (status.ok()) status = partial->status;
    MutexLock lock(&steps_mu_);
    partial_steps_.erase(handle);
  }
  return status;
}

Status DirectSession::Close() {
  absl::flat_hash_map<std::string, std::shared_ptr<PartialStep>> partial;
  {
    MutexLock lock(&steps_mu_);
    closed_ = true;
    partial.swap(partial_steps_);
  }
  CancelRunningSteps();
  for (auto& [handle, step] : partial) step->ended.Wait();
  partial.clear();
  MutexLock lock(&steps_mu_);
  while (running_ != nullptr) step_ended_.Wait(&steps_mu_);
  return absl::OkStatus();
}

}  // namespace millrace
