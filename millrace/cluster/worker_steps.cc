// The steps of a task: those it knows, their parts as masters without lines run them (serve_graph.cc has the others), and their tensors for whoever
// asks.
#include <atomic>
#include <utility>

#include "millrace/cluster/let_go.h"
#include "millrace/cluster/part_execution.h"
#include "millrace/cluster/worker.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// A step whose master never said that it is over is forgotten after this time without a sign of it.
constexpr absl::Duration kStaleStep = absl::Minutes(2);

}  // namespace

RefPtr<StepRendezvous> Worker::StepFor(int64_t step_id) { return FindStep(step_id, /*keep=*/true, 0); }

RefPtr<StepRendezvous> Worker::FindStep(int64_t step_id, bool keep, int new_receivers) {
  MutexLock lock(&mu_);
  DropStaleSteps();
  if (ended_steps_.Contains(step_id)) {
    auto over = MakeRef<StepRendezvous>(step_id, options_.waits.get());
    over->Abort(AlreadyExists("step ", step_id, " is over on ", options_.task.name()));
    return over;
  }
  Step& step = steps_[step_id];
  if (!step.rendezvous) {
    step.rendezvous = MakeRef<StepRendezvous>(step_id, options_.waits.get());
    if (!going_down_.ok()) step.rendezvous->Abort(going_down_);
  }
  step.touched = options_.clock->Now();
  step.kept |= keep;
  step.receivers += new_receivers;
  return step.rendezvous;
}

void Worker::ForgetStep(int64_t step_id) {
  RefPtr<StepRendezvous> rendezvous;
  {
    MutexLock lock(&mu_);
    if (auto node = steps_.extract(step_id); !node.empty()) rendezvous = std::move(node.mapped().rendezvous);
    ended_steps_.Insert(step_id);
  }
  if (rendezvous) rendezvous->Abort(Cancelled("the step has ended"));
}

void Worker::DropStaleSteps() {
  const absl::Time now = options_.clock->Now();
  if (now - last_sweep_ < kStaleStep / 4) return;
  last_sweep_ = now;
  absl::erase_if(steps_, [&](auto& entry) {
    const Step& step = entry.second;
    return !step.running && !step.kept && now - step.touched > kStaleStep && step.receivers == 0;
  });
}

void Worker::RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) {
  StatusOr<std::shared_ptr<WorkerSession>> session = FindSession(call.session_handle, call.create_worker_session_called);
  if (!session.ok()) return done(session.status());
  if (control.from != nullptr) (*session)->lease()->Touch(*control.from);
  StatusOr<std::shared_ptr<RegisteredGraph>> graph = (*session)->Find(call.graph_handle);
  if (!graph.ok()) return done(graph.status());
  if (control.cancellation == nullptr) return done(Internal("a step cannot run without a way to cancel it"));
  PartRun run{.graph = *std::move(graph), .step_id = call.step_id, .rendezvous = FindStep(call.step_id, /*keep=*/false, 0)};
  run.trace = call.exec_opts.record_timeline();
  run.cancellation = control.cancellation;
  run.owner = control.owner;
  run.from = control.from;
  if (Status status = BeginRunGraph(call.step_id, call.session_handle); !status.ok()) return done(status);
  const RefPtr<StepRendezvous> rendezvous = run.rendezvous;
  auto answer = std::make_unique<RunGraphAnswer>();
  for (auto& [key, value] : call.send) {
    if (Status status = rendezvous->Send(key, {std::move(value), false}); !status.ok()) answer->status = status;
  }
  if (call.exec_opts.record_partition_graphs()) answer->partition_graphs.push_back(ExportGraphDef(run.graph->plan->graph()));
  call.send.clear();
  Run(std::move(run), [self = shared_from_this(), rendezvous, call = std::move(call), answer = std::move(answer),
                       cancellation = control.cancellation, owner = control.owner, done = std::move(done)](PartResult result) mutable {
    result.status = CauseOf(std::move(result.status), cancellation);
    self->FinishRunGraph(call, *rendezvous, *answer, std::move(result));
    done(std::move(*answer));
  });
}

Status Worker::BeginRunGraph(int64_t step_id, const std::string& session_handle) {
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  if (it == steps_.end()) return AlreadyExists("step ", step_id, " has run on ", options_.task.name(), " or was given up");
  Step& step = it->second;
  // A request that came twice runs once.
  if (!step.session.empty()) return AlreadyExists("step ", step_id, " runs on ", options_.task.name(), " already");
  step.session = session_handle.empty() ? "legacy" : session_handle;
  step.running = true;
  return absl::OkStatus();
}

void Worker::FinishRunGraph(const RunGraphCall& call, StepRendezvous& rendezvous, RunGraphAnswer& answer, PartResult result) {
  answer.step_stats = std::move(result.step_stats);
  if (answer.status.ok()) answer.status = result.status;
  // Everything that the part sends is there once it has run.
  for (const std::string& key : call.recv_keys) {
    if (!answer.status.ok()) break;
    bool came = false;
    rendezvous.RecvLocal(key, [&](StatusOr<RendezvousItem> item) {
      came = true;
      if (!item.ok()) {
        answer.status = item.status();
      } else if (item->is_dead) {
        StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
        answer.status = Internal("the fetched tensor ", parsed.ok() ? parsed->tensor : key, " is dead: its branch was not taken");
      } else {
        answer.recv.emplace_back(key, std::move(item->tensor));
      }
    });
    if (!came) {
      // The callback refers to this frame: it must not be left behind.
      const Status missing = InvalidArgument("step ", call.step_id, " gives no tensor under '", key, "'");
      rendezvous.Abort(missing);
      answer.status = missing;
    }
  }
  NoteRan(call.step_id, rendezvous, answer.status.ok());
}

void Worker::NoteRan(int64_t step_id, const StepRendezvous& rendezvous, bool went_well) {
  MutexLock lock(&mu_);
  if (const auto it = steps_.find(step_id); it != steps_.end()) {
    it->second.running = false;
    it->second.went_well = went_well;
    it->second.touched = options_.clock->Now();
    if (went_well && rendezvous.IsEmpty()) {
      steps_.erase(it);
      ended_steps_.Insert(step_id);
    }
  }
}

void Worker::OnReceiverGone(int64_t step_id, const StepRendezvous* rendezvous, bool gave_up) {
  RefPtr<StepRendezvous> forgotten;  // let go of without the lock
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  if (it == steps_.end() || it->second.rendezvous.get() != rendezvous) return;
  Step& step = it->second;
  --step.receivers;
  if (step.went_well && step.rendezvous->IsEmpty()) {
    ended_steps_.Insert(step_id);
  } else if (!gave_up || step.receivers > 0 || step.kept || !step.session.empty()) {
    return;
  }
  forgotten = std::move(step.rendezvous);
  steps_.erase(it);
}

void Worker::CleanupGraph(const CallControl&, int64_t step_id, DoneStatus done) {
  ForgetStep(step_id);
  done(absl::OkStatus());
}

void Worker::RecvTensor(const CallControl& control, int64_t step_id, const std::string& key, Done<RendezvousItem> done) {
  RecvTensors(control, step_id, {key}, [done = std::move(done)](StatusOr<std::vector<RendezvousItem>> items) mutable {
    if (!items.ok()) return done(items.status());
    done(std::move(items->front()));
  });
}

Status Worker::CheckKey(const std::string& key) const {
  MR_ASSIGN_OR_RETURN(const ParsedKey parsed, ParsedKey::Parse(key));
  for (const auto& device : options_.devices) {
    if (device->incarnation() == parsed.incarnation) return absl::OkStatus();
  }
  return Aborted("task ", options_.task.name(), " was restarted: the tensor ", parsed.tensor, " was to come from the process before");
}

void Worker::RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys, Done<std::vector<RendezvousItem>> done) {
  if (keys.empty()) return done(InvalidArgument("step ", step_id, ": no tensor is asked for"));
  for (const std::string& key : keys) {
    if (Status status = CheckKey(key); !status.ok()) return done(std::move(status));
  }
  const RefPtr<StepRendezvous> rendezvous = FindStep(step_id, /*keep=*/false, 1);
  // A caller that gives up ends its own wait only; the step may go on for others. What waits is shared, since both the tensors
  // and the cancellation may come.
  struct Waiting : RefCounted {
    std::atomic<bool> answered{false};
    std::atomic<size_t> missing{0};
    std::vector<RendezvousItem> items;
    Done<std::vector<RendezvousItem>> done;
  };
  RefPtr<Waiting> waiting = MakeRef<Waiting>();
  waiting->missing = keys.size();
  waiting->items.resize(keys.size());
  waiting->done = std::move(done);
  CancellationManager* const cancellation = control.cancellation;
  CancellationManager::Token token = 0;
  if (cancellation != nullptr) {
    token = cancellation->NewToken();
    const bool registered = cancellation->Register(token, [self = shared_from_this(), step_id, rendezvous, waiting] {
      if (waiting->answered.exchange(true)) return;
      self->OnReceiverGone(step_id, rendezvous.get(), /*gave_up=*/true);
      waiting->done(Cancelled("the receiver gave up"));
    });
    if (!registered) {
      OnReceiverGone(step_id, rendezvous.get(), /*gave_up=*/true);
      return waiting->done(cancellation->status());
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    // The rendezvous holds this callback, so the callback only knows its address.
    rendezvous->RecvLocal(keys[i], [self = shared_from_this(), step_id, where = rendezvous.get(), waiting, cancellation, token,
                                    i](StatusOr<RendezvousItem> item) {
      Status status = item.status();
      if (item.ok()) {
        waiting->items[i] = *std::move(item);
        if (waiting->missing.fetch_sub(1) > 1) return;
      }
      if (waiting->answered.exchange(true)) return;
      if (cancellation != nullptr) LetGo(cancellation, token);
      self->OnReceiverGone(step_id, where, /*gave_up=*/false);
      if (!status.ok()) return waiting->done(std::move(status));
      waiting->done(std::move(waiting->items));
    });
  }
}

}  // namespace millrace
