#include "millrace/task/partial_step_run.h"

#include <optional>
#include <utility>

#include "millrace/base/fan_in.h"
#include "millrace/task/step_signature.h"

namespace millrace {

struct PartialStepRun::OneCall {
  std::vector<std::string> names;
  std::vector<Tensor> fetched;  // in the order of the fetches
  CancellationManager* cancellation = nullptr;
  CancellationManager::Token token = 0;
  std::shared_ptr<void> owner;
  Done done;
  std::optional<FanIn> all;
};

void PartialStepRun::Call(absl::Span<const Feed> feeds, std::vector<std::string> fetches,
                          CancellationManager* cancellation, std::shared_ptr<void> owner, Done done) {
  bool last = false;
  if (Status status = calls_->Begin(feeds, fetches, &last); !status.ok()) return done(std::move(status), false);
  Status status;
  for (const auto& [name, value] : feeds) {
    if (status.ok()) status = ports_.send(calls_->KeyOf(name), {value, false});
  }
  const std::shared_ptr<PartialStepRun> self = shared_from_this();
  auto call = std::make_shared<OneCall>();
  call->names = std::move(fetches);
  call->fetched.resize(call->names.size());
  call->owner = std::move(owner);
  call->done = std::move(done);
  // A client that gives up on a call gives up on the step.
  if (cancellation != nullptr) {
    const auto give_up = [weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->Cancel(Cancelled("the client gave up on the step"));
    };
    call->token = cancellation->NewToken();
    if (cancellation->Register(call->token, give_up)) {
      call->cancellation = cancellation;
    } else {
      give_up();
    }
  }
  // Completes when every fetch has arrived, this function has returned and, for the last call, the step has ended.
  call->all.emplace(call->names.size() + (last ? 2 : 1), [self, at = call.get(), last](Status result) {
    // This may run within the cancellation itself, whose callbacks own what they use.
    if (at->cancellation != nullptr && !at->cancellation->IsCancelled()) at->cancellation->Deregister(at->token);
    if (!result.ok()) self->Cancel(result);
    if (result.ok()) {
      at->done(std::move(at->fetched), last);
    } else {
      at->done(std::move(result), true);
    }
  });
  for (size_t i = 0; i < call->names.size(); ++i) {
    ports_.recv(calls_->KeyOf(call->names[i]), [call, i](StatusOr<RendezvousItem> item) {
      if (!item.ok()) return call->all->Arrive(item.status());
      if (item->is_dead) {
        return call->all->Arrive(Internal("the fetched tensor ", call->names[i], " is dead: its branch was not taken"));
      }
      call->fetched[i] = std::move(item->tensor);
      call->all->Arrive();
    });
  }
  if (last) WhenEnded([call](const Status& how) { call->all->Arrive(how); });
  call->all->Arrive(status);
}

void PartialStepRun::OnEnd(const Status& status) {
  std::vector<absl::AnyInvocable<void(Status)>> when_ended;
  {
    MutexLock lock(&mu_);
    ended_ = true;
    status_ = status;
    when_ended.swap(when_ended_);
  }
  for (auto& then : when_ended) then(status);
}

void PartialStepRun::WhenEnded(absl::AnyInvocable<void(Status)> then) {
  Status status;
  {
    MutexLock lock(&mu_);
    if (!ended_) return when_ended_.push_back(std::move(then));
    status = status_;
  }
  then(std::move(status));
}

namespace {

// The state of a partial run on one task. Kept alive by the run's ports, and by the task until the part has ended.
struct LocalStep {
  CompiledPart part;
  LocalRendezvous rendezvous;
  CancellationManager cancellation;
};

}  // namespace

StatusOr<std::shared_ptr<PartialStepRun>> StartPartialStep(const std::shared_ptr<Task>& task,
                                                           const std::shared_ptr<TaskSession>& session,
                                                           std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                           const PartOptions& options) {
  MR_RETURN_IF_ERROR(task->status());
  const Device& home = *session->devices()[0];
  CallableSpec run;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<PartialStepCalls> calls,
                      PartialStepCalls::Prepare(graph.get(), spec, home.name(), home.incarnation(), &run.targets));
  MR_ASSIGN_OR_RETURN(PassContext signature, ResolveSignature(graph.get(), run));
  auto step = std::make_shared<LocalStep>();
  MR_ASSIGN_OR_RETURN(step->part, task->Compile(session, std::move(graph), std::move(signature), options));
  // Feeds and fetches that wait end with the step.
  if (!step->cancellation.Register(step->cancellation.NewToken(), [at = step.get()] {
        at->rendezvous.Abort(Cancelled("the partial run was cancelled"));
      })) {
    return Internal("a step was cancelled before it began");
  }
  PartialStepPorts ports;
  ports.send = [step](absl::string_view key, RendezvousItem item) {
    return step->rendezvous.Send(key, std::move(item));
  };
  ports.recv = [step](absl::string_view key, Rendezvous::Done done) { step->rendezvous.Recv(key, std::move(done)); };
  ports.cancel = [step](const Status& why) { step->cancellation.StartCancel(why); };
  auto partial = std::make_shared<PartialStepRun>(std::move(calls), std::move(ports));
  PartArgs args{.rendezvous = &step->rendezvous, .cancellation = &step->cancellation, .owner = step};
  task->RunAsync(step->part, args, {}, [partial, step](Status status) {
    if (!status.ok()) step->rendezvous.Abort(status);
    partial->OnEnd(status);
  });
  return partial;
}

}  // namespace millrace
