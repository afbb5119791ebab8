#include "millrace/cluster/master/master_session.h"

#include <algorithm>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/cluster/master/master_step.h"
#include "millrace/graph/graph_def.h"
#include "millrace/task/partial_step_run.h"

namespace millrace {
namespace {

constexpr size_t kRememberedRequests = 4096;

PassOptions PassesOf(const pb::ConfigProto& config) {
  const pb::OptimizerOptions& optimizer = config.graph_options().optimizer_options();
  return optimizer.opt_level() == pb::OptimizerOptions::L0 ? PassOptions::None() : PassOptions();
}

}  // namespace

MasterSession::MasterSession(MasterSessionOptions options)
    : options_(std::move(options)),
      opened_(options_.worker->task().clock()->Now()),
      builder_(std::make_shared<ProgramBuilder>(
          ProgramBuilderOptions{.tasks = options_.tasks,
                                .worker_session = options_.worker_session,
                                .passes = PassesOf(options_.config),
                                .allow_soft_placement = options_.config.allow_soft_placement()})),
      programs_(std::make_shared<ProgramTable>(
          ProgramTableOptions{.session = options_.handle, .config = options_.config, .timers = options_.timers},
          builder_)),
      next_step_id_(options_.first_step_id),
      requests_(kRememberedRequests) {}

MasterSession::~MasterSession() = default;

Status MasterSession::Add(pb::GraphDef def) {
  const int first_new = graph_.max_id();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), &graph_));
  if (Status status = builder_->Place(&graph_); !status.ok()) {
    graph_.RemoveNodes([&](const Node* node) { return node->id() >= first_new; });
    return status;
  }
  num_nodes_.store(graph_.num_nodes(), std::memory_order_relaxed);
  if (options_.config.log_device_placement()) {
    for (const Node* node : graph_.nodes()) {
      if (node->id() >= first_new) MR_LOG(Info, node->name(), ": (", node->type(), "): ", node->assigned_device());
    }
  }
  return absl::OkStatus();
}

Status MasterSession::Begin(pb::GraphDef def) {
  MutexLock lock(&graph_mu_);
  return Add(std::move(def));
}

StatusOr<int64_t> MasterSession::Extend(pb::GraphDef def, int64_t version) {
  MutexLock lock(&graph_mu_);
  if (version != version_) {
    return Aborted("the graph of the session is at version ", version_, ", the extension is for version ", version,
                   ": another client of the session has extended it");
  }
  MR_RETURN_IF_ERROR(Add(std::move(def)));
  return ++version_;
}

void MasterSession::Program(const CallableSpec& spec, const CallControl& control,
                            Done<std::shared_ptr<const MasterProgram>> done, absl::Duration limit) {
  const auto graph_for = [this](const CallableSpec& spec, FeedTypes* feeds) -> StatusOr<std::unique_ptr<Graph>> {
    MutexLock lock(&graph_mu_);
    MR_ASSIGN_OR_RETURN(*feeds, CheckSignature(graph_, spec));
    return graph_.Clone();
  };
  programs_->Find(spec, control, graph_for, std::move(done), limit);
}

void MasterSession::Run(std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
                        const pb::RunOptions& options, const CallControl& control, Done<StepResult> done,
                        bool may_repeat) {
  if (Status status = program->feeds.Check(feeds); !status.ok()) return done(status);
  if (ABSL_PREDICT_TRUE(program->collective_graph_key == 0)) {
    return RunAs(next_step_id_.fetch_add(1), std::move(program), std::move(feeds), options, control, std::move(done),
                 may_repeat);
  }
  // Buffers are exchanged within one run of a step, so it is never repeated as a whole.
  const CollectiveScope scope = options_.worker_session->collectives();
  if (scope.leader.empty()) {
    return RunAs(next_step_id_.fetch_add(1), std::move(program), std::move(feeds), options, control, std::move(done),
                 /*may_repeat=*/false);
  }
  // Other masters may run the same step.
  int64_t graph_key = options.experimental().collective_graph_key();
  if (graph_key == 0) graph_key = program->collective_graph_key;
  options_.worker->collectives().BeginStepOf(
      scope, graph_key, control,
      [self = shared_from_this(), program = std::move(program), feeds = std::move(feeds), options, control, graph_key,
       scope, done = std::move(done)](StatusOr<int64_t> step_id) mutable {
        if (!step_id.ok()) return done(step_id.status());
        // TensorFlow's tasks know one id for both. Ours keep apart the steps of two masters that use the same task.
        const bool apart = std::all_of(program->parts.begin(), program->parts.end(), [](const ProgramPart& part) {
          return part.peer == nullptr || part.speaks_millrace;
        });
        self->RunAs(
            apart ? self->next_step_id_.fetch_add(1) : *step_id, std::move(program), std::move(feeds), options, control,
            [self, scope, graph_key, id = *step_id, done = std::move(done)](StatusOr<StepResult> result) mutable {
              self->options_.worker->collectives().EndStepOf(scope, graph_key, id, result.status());
              done(std::move(result));
            },
            /*may_repeat=*/false, apart ? *step_id : 0);
      });
}

void MasterSession::RunAs(int64_t step_id, std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
                          const pb::RunOptions& options, const CallControl& control, Done<StepResult> done,
                          bool may_repeat, int64_t collective_step) {
  const bool remote = !program->is_local();
  RefPtr<StepRendezvous> rendezvous;
  if (remote) rendezvous = options_.worker->steps().Keep(step_id);
  auto step = std::make_shared<MasterStep>(shared_from_this(), std::move(program), std::move(feeds), options, step_id,
                                           std::move(rendezvous), std::move(done));
  if (may_repeat) step->MayRepeat();
  if (collective_step != 0) step->SetCollectiveStep(collective_step);
  Status refused;
  {
    MutexLock lock(&mu_);
    if (closed_) {
      refused = closed_because_;
    } else {
      running_.emplace(step.get(), step);
    }
  }
  if (!refused.ok()) return step->Refuse(refused);
  if (remote && options_.on_remote_step != nullptr) options_.on_remote_step();
  step->Start(control);
}

void MasterSession::OnStepEnded(MasterStep* step) {
  std::shared_ptr<MasterStep> ended;  // the last reference may be the one in the table: released without the lock
  absl::AnyInvocable<void()> on_idle;
  {
    MutexLock lock(&mu_);
    if (const auto it = running_.find(step); it != running_.end()) {
      ended = std::move(it->second);
      running_.erase(it);
    }
    if (running_.empty() && on_idle_ != nullptr) on_idle = std::exchange(on_idle_, nullptr);
  }
  if (on_idle != nullptr) on_idle();
}

Status MasterSession::NoteRequest(int64_t request_id) {
  if (request_id == 0) return absl::OkStatus();
  MutexLock lock(&mu_);
  if (requests_.Insert(request_id)) return absl::OkStatus();
  return Aborted("request ", request_id, " of session '", handle(), "' reached ", options_.tasks[0].name,
                 " twice; it runs once");
}

void MasterSession::RunStep(RunStepCall call, const CallControl& control, Done<RunStepAnswer> done) {
  if (Status status = NoteRequest(call.request_id); !status.ok()) return done(status);
  if (!call.partial_run_handle.empty()) {
    const StatusOr<std::shared_ptr<PartialRun>> partial = partial_runs_.Find(call.partial_run_handle);
    if (!partial.ok()) return done(partial.status());
    return RunPartial(*partial, std::move(call), control, std::move(done));
  }
  CallableSpec spec;
  std::vector<Tensor> feeds;
  feeds.reserve(call.feeds.size());
  spec.feeds.reserve(call.feeds.size());
  for (auto& [name, value] : call.feeds) {
    spec.feeds.push_back(std::move(name));
    feeds.push_back(std::move(value));
  }
  // A name that is fetched twice is returned once.
  for (std::string& name : call.fetches) {
    if (std::find(spec.fetches.begin(), spec.fetches.end(), name) == spec.fetches.end())
      spec.fetches.push_back(std::move(name));
  }
  spec.targets = std::move(call.targets);
  // A limit that the caller's transport watches needs no timer here.
  const bool limited = call.options.timeout_in_ms() > 0 && control.timeout == absl::InfiniteDuration();
  const absl::Duration limit = limited ? absl::Milliseconds(call.options.timeout_in_ms()) : absl::InfiniteDuration();
  Program(
      spec, control,
      [self = shared_from_this(), feeds = std::move(feeds), options = std::move(call.options), control,
       done = std::move(done)](StatusOr<std::shared_ptr<const MasterProgram>> program) mutable {
        if (!program.ok()) return done(program.status());
        const MasterProgram* p = program->get();
        self->Run(*std::move(program), std::move(feeds), options, control,
                  [p, done = std::move(done)](StatusOr<StepResult> result) mutable {
                    if (!result.ok()) return done(result.status());
                    RunStepAnswer answer;
                    answer.metadata = std::move(result->metadata);
                    answer.tensors.reserve(result->fetches.size());
                    for (size_t i = 0; i < result->fetches.size(); ++i) {
                      answer.tensors.emplace_back(p->spec.fetches[i], std::move(result->fetches[i]));
                    }
                    done(std::move(answer));
                  });
      },
      limit);
}

void MasterSession::MakeCallable(pb::CallableOptions options, const CallControl& control, Done<int64_t> done) {
  if (options.tensor_connection_size() > 0) {
    return done(Unimplemented("callables with tensor connections are not supported"));
  }
  CallableSpec spec;
  spec.feeds.assign(options.feed().begin(), options.feed().end());
  spec.fetches.assign(options.fetch().begin(), options.fetch().end());
  spec.targets.assign(options.target().begin(), options.target().end());
  Program(spec, control,
          [self = shared_from_this(), run_options = options.run_options(),
           done = std::move(done)](StatusOr<std::shared_ptr<const MasterProgram>> program) mutable {
            if (!program.ok()) return done(program.status());
            int64_t handle = 0;
            {
              MutexLock lock(&self->mu_);
              handle = self->next_callable_++;
              self->callables_[handle] = {*std::move(program), std::move(run_options)};
            }
            done(handle);
          });
}

void MasterSession::RunCallable(RunCallableCall call, const CallControl& control, Done<RunCallableAnswer> done) {
  if (Status status = NoteRequest(call.request_id); !status.ok()) return done(status);
  CallableEntry entry;
  {
    MutexLock lock(&mu_);
    if (const auto it = callables_.find(call.handle); it != callables_.end()) entry = it->second;
  }
  if (entry.program == nullptr) return done(InvalidArgument("there is no callable ", call.handle, " in this session"));
  if (call.run.given()) *entry.options.mutable_millrace_run() = ToProto(call.run);
  Run(entry.program, std::move(call.feeds), entry.options, control,
      [done = std::move(done)](StatusOr<StepResult> result) mutable {
        if (!result.ok()) return done(result.status());
        done(RunCallableAnswer{.fetches = std::move(result->fetches), .metadata = std::move(result->metadata)});
      });
}

Status MasterSession::ReleaseCallable(int64_t handle) {
  CallableEntry released;  // its program is destroyed without the lock
  MutexLock lock(&mu_);
  if (const auto it = callables_.find(handle); it != callables_.end()) {
    released = std::move(it->second);
    callables_.erase(it);
  }
  return absl::OkStatus();
}

// A partial run over a cluster: all of the client's tensors pass through the master's own task.
struct MasterSession::PartialRun {
  std::shared_ptr<PartialStepRun> calls;
  std::shared_ptr<MasterStep> step;
  const RefPtr<ThreadHandover> handover = MakeRef<ThreadHandover>();  // of the threads that feed it
};

void MasterSession::PartialRunSetup(CallableSpec spec, const CallControl& control, Done<std::string> done) {
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    graph = graph_.Clone();
  }
  CallableSpec run;
  StatusOr<std::unique_ptr<PartialStepCalls>> calls =
      PartialStepCalls::Prepare(graph.get(), spec, builder_->home_device(), builder_->home_incarnation(), &run.targets);
  if (!calls.ok()) return done(calls.status());
  programs_->Make(std::move(graph), run,
                  [self = shared_from_this(), calls = *std::move(calls),
                   done = std::move(done)](StatusOr<std::shared_ptr<const MasterProgram>> program) mutable {
                    if (!program.ok()) return done(program.status());
                    done(self->StartPartial(std::move(calls), *std::move(program)));
                  });
}

StatusOr<std::string> MasterSession::StartPartial(std::unique_ptr<PartialStepCalls> calls,
                                                  std::shared_ptr<const MasterProgram> program) {
  const int64_t step_id = next_step_id_.fetch_add(1);
  const RefPtr<StepRendezvous> rendezvous = options_.worker->steps().Keep(step_id);
  auto partial = std::make_shared<PartialRun>();
  partial->step =
      std::make_shared<MasterStep>(shared_from_this(), std::move(program), std::vector<Tensor>(), pb::RunOptions(),
                                   step_id, rendezvous, [partial, rendezvous](const StatusOr<StepResult>& result) {
                                     if (!result.ok()) rendezvous->Abort(result.status());
                                     partial->calls->OnEnd(result.status());
                                   });
  partial->step->KeepTensors();
  PartialStepPorts ports;
  ports.send = [rendezvous](absl::string_view key, RendezvousItem item) {
    return rendezvous->Send(key, std::move(item));
  };
  ports.recv = [rendezvous](absl::string_view key, Rendezvous::Done done) {
    rendezvous->RecvLocal(key, std::move(done));
  };
  ports.cancel = [step = std::weak_ptr(partial->step), rendezvous](const Status& why) {
    if (const std::shared_ptr<MasterStep> running = step.lock()) running->Cancel(why);
    rendezvous->Abort(why);
  };
  partial->calls = std::make_shared<PartialStepRun>(std::move(calls), std::move(ports));
  Status refused;
  std::string handle;
  {
    MutexLock lock(&mu_);
    if (closed_) {
      refused = closed_because_;
    } else {
      handle = partial_runs_.Add(partial);
      running_.emplace(partial->step.get(), partial->step);
    }
  }
  if (!refused.ok()) {
    partial->step->Refuse(refused);
    return refused;
  }
  if (options_.on_remote_step != nullptr) options_.on_remote_step();
  partial->step->Start({.handover = partial->handover});
  return handle;
}

void MasterSession::RunPartial(const std::shared_ptr<PartialRun>& partial, RunStepCall call, const CallControl& control,
                               Done<RunStepAnswer> done) {
  // This thread continues the step when it feeds it. A thread that awaits an answer has nothing to hand over: the calls
  // to peers are not its own.
  EventThread* const here = control.handover ? control.handover->Here() : nullptr;
  const ThreadHandover::Entry entry(partial->handover, here != nullptr && here->awaits_answer() ? nullptr : here);
  std::vector<std::string> fetches = call.fetches;
  partial->calls->Call(
      call.feeds, std::move(fetches), control.cancellation, control.owner,
      [self = shared_from_this(), partial, handle = std::move(call.partial_run_handle), names = std::move(call.fetches),
       done = std::move(done)](StatusOr<std::vector<Tensor>> fetched, bool over) mutable {
        if (over) self->EndPartial(handle, *partial);
        if (!fetched.ok()) return done(fetched.status());
        RunStepAnswer answer;
        for (size_t i = 0; i < names.size(); ++i) {
          answer.tensors.emplace_back(std::move(names[i]), std::move((*fetched)[i]));
        }
        done(std::move(answer));
      });
}

bool MasterSession::IsIdle() const {
  MutexLock lock(&mu_);
  size_t partial = 0;
  for (const std::shared_ptr<PartialRun>& run : partial_runs_.List()) partial += running_.contains(run->step.get());
  return running_.size() == partial;
}

void MasterSession::EndPartial(const std::string& handle, const PartialRun& partial) {
  options_.worker->steps().Forget(partial.step->step_id());
  partial_runs_.Remove(handle);
}

pb::ListDevicesResponse MasterSession::ListDevices() const {
  pb::ListDevicesResponse response;
  for (const SessionTask& task : options_.tasks) {
    for (const pb::DeviceAttributes& device : task.devices) {
      *(task.peer == nullptr ? response.add_local_device() : response.add_remote_device()) = device;
    }
  }
  return response;
}

void MasterSession::Close(const Status& why, absl::AnyInvocable<void()> done) {
  std::vector<std::shared_ptr<MasterStep>> steps;
  std::vector<std::shared_ptr<PartialRun>> partial_runs;
  absl::flat_hash_map<int64_t, CallableEntry> callables;  // their programs are destroyed without the lock
  auto finish = [self = shared_from_this(), done = std::move(done)]() mutable {
    for (const SessionTask& task : self->options_.tasks) {
      if (task.peer == nullptr) continue;
      task.peer->worker->DeleteWorkerSession({.timeout = absl::Seconds(10)}, self->handle(), [](Status) {});
    }
    self->options_.worker->DeleteWorkerSession({}, self->handle(), [](Status) {});
    done();
  };
  bool idle = false;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    closed_because_ = why;
    partial_runs = partial_runs_.TakeAll();
    callables.swap(callables_);
    steps = Ordered([](const MasterStep&) { return true; });
    idle = running_.empty();
    if (!idle && on_idle_ == nullptr) {
      on_idle_ = std::move(finish);
    } else if (!idle) {
      on_idle_ = [first = std::move(on_idle_), second = std::move(finish)]() mutable {
        first();
        second();
      };
    }
  }
  programs_->Close(why);
  if (idle) finish();
  for (const std::shared_ptr<MasterStep>& step : steps) step->Cancel(why);
  // Including those that have ended with tensors that were not fetched; in order, so that simulations are
  // deterministic.
  std::sort(partial_runs.begin(), partial_runs.end(),
            [](const auto& a, const auto& b) { return a->step->step_id() < b->step->step_id(); });
  for (const std::shared_ptr<PartialRun>& run : partial_runs) options_.worker->steps().Forget(run->step->step_id());
}

std::vector<std::shared_ptr<MasterStep>> MasterSession::Ordered(
    absl::FunctionRef<bool(const MasterStep&)> wanted) const {
  std::vector<std::shared_ptr<MasterStep>> steps;
  for (const auto& [pointer, step] : running_) {
    if (wanted(*step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a->step_id() < b->step_id(); });
  return steps;
}

bool MasterSession::ListPeers(std::vector<Awaited>* peers) const {
  MutexLock lock(&mu_);
  for (const auto& [pointer, step] : running_) step->ListPeers(peers);
  return !running_.empty();
}

void MasterSession::OnPeerLost(const Awaited& peer, const Status& why) {
  std::vector<std::shared_ptr<MasterStep>> steps;
  {
    MutexLock lock(&mu_);
    steps = Ordered([&](const MasterStep& step) { return step.DependsOn(peer, why); });
  }
  for (const std::shared_ptr<MasterStep>& step : steps) step->Cancel(why);
}

std::vector<RunningStep> MasterSession::ListRunning() const {
  std::vector<RunningStep> running;
  MutexLock lock(&mu_);
  for (const auto& [pointer, step] : running_) {
    RunningStep entry{.step_id = step->step_id(), .session = handle(), .since = step->since(), .waits_for = {}};
    std::vector<Awaited> awaited;
    step->ListAwaited(&awaited);
    for (const Awaited& peer : awaited) entry.waits_for.push_back(peer.task);
    running.push_back(std::move(entry));
  }
  return running;
}

}  // namespace millrace
