#include "millrace/cluster/master_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "millrace/base/log.h"
#include "millrace/cluster/master_step.h"
#include "millrace/cluster/program_wait.h"
#include "millrace/graph/graph_def.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr size_t kRememberedRequests = 4096;

}  // namespace

MasterSession::MasterSession(MasterSessionOptions options)
    : options_(std::move(options)),
      opened_(options_.worker->options().clock->Now()),
      next_step_id_(options_.first_step_id),
      requests_(kRememberedRequests) {
  home_device_ = options_.tasks[0].devices[0].name();
  for (const SessionTask& task : options_.tasks) {
    for (const pb::DeviceAttributes& device : task.devices) {
      placement_.devices.push_back(device.name());
      partition_.incarnations[device.name()] = device.incarnation();
    }
  }
  placement_.default_device = options_.tasks[0].name;
  placement_.allow_soft_placement = options_.config.allow_soft_placement();
  placement_.has_kernel = [](const Node& node, const std::string& device_type) {
    return node.is_type("NoOp") || KernelRegistry::Global().Has(node.type(), device_type);
  };
  partition_.home_task = options_.tasks[0].name;
}

MasterSession::~MasterSession() = default;

PassOptions MasterSession::Passes() const {
  const pb::OptimizerOptions& optimizer = options_.config.graph_options().optimizer_options();
  return optimizer.opt_level() == pb::OptimizerOptions::L0 ? PassOptions::None() : PassOptions();
}

const SessionTask* MasterSession::FindTask(absl::string_view name) const {
  for (const SessionTask& task : options_.tasks) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

Status MasterSession::Place(Graph* graph) const { return PlaceNodes(graph, placement_); }

Status MasterSession::Add(pb::GraphDef def) {
  const int first_new = graph_.max_id();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), &graph_));
  if (Status status = Place(&graph_); !status.ok()) {
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

std::shared_ptr<const MasterProgram> MasterSession::FindProgram(const std::string& key) const {
  const auto it = programs_.find(key);
  return it == programs_.end() ? nullptr : it->second;
}

void MasterSession::Program(const CallableSpec& spec, const CallControl& control, Waiter done, absl::Duration limit) {
  std::string key = SignatureKey(spec);
  std::shared_ptr<const MasterProgram> found;
  {
    MutexLock lock(&programs_mu_);
    found = FindProgram(key);
  }
  if (found != nullptr) return done(std::move(found));
  auto wait = std::make_shared<ProgramWait>(std::move(done));
  wait->Start(control, &closing_, options_.timers, limit);
  if (wait->ended()) return;
  {
    MutexLock lock(&programs_mu_);
    found = FindProgram(key);
    if (found == nullptr) {
      std::vector<Waiter>& waiters = compiling_[key];
      waiters.push_back([wait](StatusOr<std::shared_ptr<const MasterProgram>> result) { wait->End(std::move(result)); });
      if (waiters.size() > 1) return;  // somebody compiles it
    }
  }
  if (found != nullptr) return wait->End(std::move(found));
  if (control.from != nullptr) control.from->RunsLong();
  std::vector<std::pair<int, pb::GraphDef>> remote;
  StatusOr<std::shared_ptr<MasterProgram>> program = Internal("not compiled");
  StatusOr<FeedTypes> feeds = Internal("not checked");
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    feeds = CheckSignature(graph_, spec);
    if (feeds.ok()) graph = graph_.Clone();
  }
  program = feeds.ok() ? Build(std::move(graph), spec, &remote) : StatusOr<std::shared_ptr<MasterProgram>>(feeds.status());
  if (program.ok()) (*program)->feeds = *std::move(feeds);
  const auto finish = [self = shared_from_this(), key](StatusOr<std::shared_ptr<const MasterProgram>> result) {
    std::vector<Waiter> waiters;
    {
      MutexLock lock(&self->programs_mu_);
      waiters = std::move(self->compiling_.extract(key).mapped());
      if (result.ok()) self->programs_[key] = *result;
    }
    for (Waiter& waiter : waiters) waiter(result);
  };
  if (!program.ok()) return finish(program.status());
  Register(*std::move(program), std::move(remote), finish);
}

void MasterSession::Register(std::shared_ptr<MasterProgram> program, std::vector<std::pair<int, pb::GraphDef>> remote,
                             Waiter done) {
  if (remote.empty()) return done(std::move(program));
  struct Registering {
    Mutex mu;
    size_t pending ABSL_GUARDED_BY(mu);
    Status status ABSL_GUARDED_BY(mu);
    Waiter done;
  };
  auto state = std::make_shared<Registering>();
  {
    MutexLock lock(&state->mu);
    state->pending = remote.size();
  }
  state->done = std::move(done);
  for (auto& [index, graph] : remote) {
    ProgramPart& part = program->parts[index];
    pb::RegisterGraphRequest request;
    request.set_session_handle(handle());
    request.set_create_worker_session_called(true);
    *request.mutable_graph_def() = std::move(graph);
    *request.mutable_graph_options() = options_.config.graph_options();
    *request.mutable_config_proto() = options_.config;
    request.mutable_debug_options();
    part.peer->worker->RegisterGraph(
        {}, std::move(request),
        [state, program, &part](StatusOr<pb::RegisterGraphResponse> response) {
          bool last = false;
          Status status;
          {
            MutexLock lock(&state->mu);
            if (response.ok()) {
              part.graph_handle = response->graph_handle();
            } else if (state->status.ok()) {
              state->status = response.status();
            }
            last = --state->pending == 0;
            status = state->status;
          }
          if (!last) return;
          if (status.ok()) {
            state->done(program);
          } else {
            state->done(std::move(status));
          }
        });
  }
}

void MasterSession::Run(std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds, const pb::RunOptions& options,
                        const CallControl& control, Done<StepResult> done, bool may_repeat) {
  if (Status status = program->feeds.Check(feeds); !status.ok()) return done(status);
  const bool remote = !program->is_local();
  const int64_t step_id = next_step_id_.fetch_add(1);
  RefPtr<StepRendezvous> rendezvous;
  if (remote) rendezvous = options_.worker->StepFor(step_id);
  auto step = std::make_shared<MasterStep>(shared_from_this(), std::move(program), std::move(feeds), options, step_id,
                                           std::move(rendezvous), std::move(done));
  if (may_repeat) step->MayRepeat();
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
  absl::AnyInvocable<void()> on_idle;
  {
    MutexLock lock(&mu_);
    running_.erase(step);
    if (running_.empty() && on_idle_ != nullptr) on_idle = std::exchange(on_idle_, nullptr);
  }
  if (on_idle != nullptr) on_idle();
}

Status MasterSession::NoteRequest(int64_t request_id) {
  if (request_id == 0) return absl::OkStatus();
  MutexLock lock(&mu_);
  if (requests_.Insert(request_id)) return absl::OkStatus();
  return Aborted("request ", request_id, " of session '", handle(), "' reached ", options_.tasks[0].name, " twice; it runs once");
}

void MasterSession::RunStep(RunStepCall call, const CallControl& control, Done<RunStepAnswer> done) {
  if (Status status = NoteRequest(call.request_id); !status.ok()) return done(status);
  if (!call.partial_run_handle.empty()) {
    std::shared_ptr<PartialRun> partial;
    {
      MutexLock lock(&mu_);
      if (const auto it = partial_runs_.find(call.partial_run_handle); it != partial_runs_.end()) partial = it->second;
    }
    if (partial == nullptr) {
      return done(InvalidArgument("there is no partial run '", call.partial_run_handle, "': it has ended or was never set up"));
    }
    return RunPartial(partial, std::move(call), control, std::move(done));
  }
  CallableSpec spec;
  std::vector<Tensor> feeds;
  feeds.reserve(call.feeds.size());
  spec.feeds.reserve(call.feeds.size());
  for (auto& [name, value] : call.feeds) {
    spec.feeds.push_back(std::move(name));
    feeds.push_back(std::move(value));
  }
  // A name that is asked for twice is answered once.
  for (std::string& name : call.fetches) {
    if (std::find(spec.fetches.begin(), spec.fetches.end(), name) == spec.fetches.end()) spec.fetches.push_back(std::move(name));
  }
  spec.targets = std::move(call.targets);
  // A limit that the caller's transport watches needs no timer here.
  const bool limited = call.options.timeout_in_ms() > 0 && control.timeout == absl::InfiniteDuration();
  const absl::Duration limit = limited ? absl::Milliseconds(call.options.timeout_in_ms()) : absl::InfiniteDuration();
  Program(spec, control,
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
  Run(entry.program, std::move(call.feeds), entry.options, control,
      [done = std::move(done)](StatusOr<StepResult> result) mutable {
        if (!result.ok()) return done(result.status());
        done(RunCallableAnswer{.fetches = std::move(result->fetches), .metadata = std::move(result->metadata)});
      });
}

Status MasterSession::ReleaseCallable(int64_t handle) {
  MutexLock lock(&mu_);
  callables_.erase(handle);
  return absl::OkStatus();
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
  std::vector<int64_t> partial_steps;
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
    partial_steps = TakePartialSteps();
    callables_.clear();
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
  closing_.StartCancel(why);
  if (idle) finish();
  for (const std::shared_ptr<MasterStep>& step : steps) step->Cancel(why);
  // Also those that have ended with tensors that nobody fetched.
  for (const int64_t step_id : partial_steps) options_.worker->ForgetStep(step_id);
  MutexLock lock(&programs_mu_);
  programs_.clear();
}

std::vector<std::shared_ptr<MasterStep>> MasterSession::Ordered(absl::FunctionRef<bool(const MasterStep&)> wanted) const {
  std::vector<std::shared_ptr<MasterStep>> steps;
  for (const auto& [pointer, step] : running_) {
    if (wanted(*step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a->step_id() < b->step_id(); });
  return steps;
}

bool MasterSession::ListAwaited(std::vector<Awaited>* peers) const {
  MutexLock lock(&mu_);
  for (const auto& [pointer, step] : running_) step->ListAwaited(peers);
  return !running_.empty();
}

void MasterSession::OnPeerLost(const Awaited& peer, const Status& why) {
  std::vector<std::shared_ptr<MasterStep>> steps;
  {
    MutexLock lock(&mu_);
    steps = Ordered([&](const MasterStep& step) { return step.Awaits(peer.task); });
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
