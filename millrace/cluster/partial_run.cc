// Steps in several calls, over a cluster: the client's tensors all pass through the master's own task.
#include <utility>

#include "millrace/cluster/master_session.h"
#include "millrace/cluster/master_step.h"
#include "millrace/graph/passes/function_inliner.h"

namespace millrace {

struct MasterSession::PartialRun {
  std::string handle;
  std::unique_ptr<PartialStepCalls> calls;
  std::shared_ptr<MasterStep> step;
  RefPtr<StepRendezvous> rendezvous;
  // Of the step as such: it ends by its last call, a failure, or the session's end.
  CancellationManager cancellation;
  Mutex mu;
  bool ended ABSL_GUARDED_BY(mu) = false;
  Status status ABSL_GUARDED_BY(mu);
  absl::AnyInvocable<void(Status)> on_end ABSL_GUARDED_BY(mu);
};

void MasterSession::PartialRunSetup(CallableSpec spec, const CallControl& control, Done<std::string> done) {
  auto partial = std::make_shared<PartialRun>();
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    graph = graph_.Clone();
  }
  std::vector<std::string> targets;
  StatusOr<std::unique_ptr<PartialStepCalls>> calls =
      PartialStepCalls::Prepare(graph.get(), spec, home_device_, partition_.incarnations.at(home_device_), &targets);
  if (!calls.ok()) return done(calls.status());
  partial->calls = *std::move(calls);
  std::vector<std::pair<int, pb::GraphDef>> remote;
  StatusOr<std::shared_ptr<MasterProgram>> program = Build(std::move(graph), {.targets = std::move(targets)}, &remote);
  if (!program.ok()) return done(program.status());
  Register(*std::move(program), std::move(remote),
           [self = shared_from_this(), partial, done = std::move(done)](StatusOr<std::shared_ptr<const MasterProgram>> ready) mutable {
             if (!ready.ok()) return done(ready.status());
             {
               MutexLock lock(&self->mu_);
               if (self->closed_) {
                 Status why = self->closed_because_;
                 return done(why);
               }
               partial->handle = absl::StrCat(self->next_partial_++);
               self->partial_runs_[partial->handle] = partial;
             }
             const int64_t step_id = self->next_step_id_.fetch_add(1);
             partial->rendezvous = self->options_.worker->StepFor(step_id);
             partial->step = std::make_shared<MasterStep>(
                 self, *std::move(ready), std::vector<Tensor>(), pb::RunOptions(), step_id, partial->rendezvous,
                 [self, partial](StatusOr<StepResult> result) {
                   absl::AnyInvocable<void(Status)> on_end;
                   const Status status = result.status();
                   if (!status.ok()) partial->rendezvous->Abort(status);
                   {
                     MutexLock lock(&partial->mu);
                     partial->ended = true;
                     partial->status = status;
                     on_end = std::move(partial->on_end);
                   }
                   if (on_end != nullptr) on_end(status);
                 });
             partial->step->KeepTensors();
             Status refused;
             {
               MutexLock lock(&self->mu_);
               if (self->closed_) {
                 refused = self->closed_because_;
               } else {
                 self->running_.emplace(partial->step.get(), partial->step);
               }
             }
             if (!refused.ok()) {
               partial->step->Refuse(refused);
               return done(refused);
             }
             if (self->options_.on_remote_step != nullptr) self->options_.on_remote_step();
             partial->step->Start({});
             done(partial->handle);
           });
}

void MasterSession::RunPartial(const std::shared_ptr<PartialRun>& partial, RunStepCall call, Done<RunStepAnswer> done) {
  bool last = false;
  if (Status status = partial->calls->Begin(call.feeds, call.fetches, &last); !status.ok()) return done(status);
  Status status;
  for (auto& [name, value] : call.feeds) {
    if (status.ok()) status = partial->rendezvous->Send(partial->calls->KeyOf(name), {std::move(value), false});
  }
  // One for each fetch, one for the end of the step where this call is the last, one for this function.
  struct Call {
    Mutex mu;
    int pending ABSL_GUARDED_BY(mu) = 1;
    Status status ABSL_GUARDED_BY(mu);
    RunStepAnswer answer;
    Done<RunStepAnswer> done;
  };
  auto state = std::make_shared<Call>();
  state->done = std::move(done);
  for (const std::string& name : call.fetches) state->answer.tensors.emplace_back(name, Tensor());
  const auto finish = [self = shared_from_this(), partial, state, last](const Status& status) {
    bool ended = false;
    Status result;
    {
      MutexLock lock(&state->mu);
      if (!status.ok() && state->status.ok()) state->status = status;
      ended = --state->pending == 0;
      result = state->status;
    }
    if (!ended) return;
    if (!result.ok()) partial->step->Cancel(result);
    if (!result.ok() || last) self->EndPartial(partial);
    if (result.ok()) {
      state->done(std::move(state->answer));
    } else {
      state->done(std::move(result));
    }
  };
  {
    MutexLock lock(&state->mu);
    state->pending += static_cast<int>(call.fetches.size()) + (last ? 1 : 0);
  }
  for (size_t i = 0; i < call.fetches.size(); ++i) {
    partial->rendezvous->RecvLocal(partial->calls->KeyOf(call.fetches[i]),
                                   [state, finish, i](StatusOr<RendezvousItem> item) {
                                     if (!item.ok()) return finish(item.status());
                                     if (item->is_dead) {
                                       return finish(Internal("the fetched tensor ", state->answer.tensors[i].first,
                                                              " is dead: its branch was not taken"));
                                     }
                                     state->answer.tensors[i].second = std::move(item->tensor);
                                     finish(absl::OkStatus());
                                   });
  }
  if (last) {
    bool ended = false;
    Status how;
    {
      MutexLock lock(&partial->mu);
      ended = partial->ended;
      how = partial->status;
      if (!ended) partial->on_end = finish;
    }
    if (ended) finish(how);
  }
  finish(status);
}

bool MasterSession::IsIdle() const {
  MutexLock lock(&mu_);
  size_t partial = 0;
  for (const auto& [handle, run] : partial_runs_) partial += running_.contains(run->step.get());
  return running_.size() == partial;
}

void MasterSession::EndPartial(const std::shared_ptr<PartialRun>& partial) {
  options_.worker->ForgetStep(partial->step->step_id());
  MutexLock lock(&mu_);
  partial_runs_.erase(partial->handle);
}

}  // namespace millrace
