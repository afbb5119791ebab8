#include "millrace/cluster/let_go.h"
#include "millrace/cluster/worker.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "millrace/cluster/prepare_senders.h"
#include "millrace/cluster/remote_worker.h"
#include "millrace/device/renamed_device.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// A step whose master never said that it is over is forgotten after this time without a sign of it.
constexpr absl::Duration kStaleStep = absl::Minutes(2);
constexpr size_t kIdleArenas = 16;
constexpr size_t kEndedSteps = 4096;
constexpr size_t kClosedSessions = 1024;

int64_t HashOf(absl::string_view handle) { return static_cast<int64_t>(absl::Hash<absl::string_view>()(handle)); }

}  // namespace

std::shared_ptr<Worker> Worker::Make(WorkerOptions options) {
  std::shared_ptr<Worker> worker(new Worker(std::move(options)));
  worker->liveness_ = LivenessMonitor::Make(worker->options_.liveness, std::weak_ptr<LivenessClient>(worker));
  worker->leases_ = LeaseMonitor::Make(worker->options_.lease, std::weak_ptr<LeaseClient>(worker));
  return worker;
}

Worker::Worker(WorkerOptions options)
    : options_(std::move(options)),
      started_(options_.clock->Now()),
      closed_sessions_(kClosedSessions),
      ended_steps_(kEndedSteps),
      last_sweep_(started_) {
  legacy_session_ = std::make_shared<WorkerSession>(WorkerSessionOptions{
      .devices = options_.devices,
      .resources = options_.resources,
      .peers = std::make_shared<PeerSet>(options_.cluster, options_.task, options_.transport, options_.liveness)});
}

Worker::~Worker() { Clear(); }

void Worker::Clear() {
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions;
  absl::flat_hash_map<int64_t, Step> steps;  // whoever waits for one is told without the lock
  {
    MutexLock lock(&mu_);
    sessions.swap(sessions_);
    steps.swap(steps_);
  }
  steps.clear();
  for (auto& [handle, session] : sessions) session->DeregisterAll();
  sessions.clear();
  legacy_session_->DeregisterAll();
  options_.resources->ClearAll();
}

void Worker::GetStatus(const CallControl&, Done<pb::GetStatusResponse> done) {
  pb::GetStatusResponse response;
  for (const auto& device : options_.devices) {
    pb::DeviceAttributes* attributes = response.add_device_attributes();
    attributes->set_name(device->name());
    attributes->set_device_type(device->type());
    attributes->set_memory_limit(256 << 20);
    attributes->mutable_locality();
    attributes->set_incarnation(device->incarnation());
    attributes->set_xla_global_id(-1);
    attributes->set_physical_device_desc("Millrace");
  }
  done(std::move(response));
}

void Worker::DeleteOrphans(const std::string& master_task, int64_t master_incarnation) {
  std::vector<std::string> orphans;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, session] : sessions_) {
      if (session->IsOrphanedBy(master_task, master_incarnation)) orphans.push_back(handle);
    }
  }
  std::sort(orphans.begin(), orphans.end());
  for (const std::string& handle : orphans) DeleteWorkerSession({}, handle, [](Status) {});
}

StatusOr<std::shared_ptr<WorkerSession>> Worker::MakeSession(const pb::CreateWorkerSessionRequest& request) {
  DeleteOrphans(request.master_task(), request.master_incarnation());
  WorkerSessionOptions session{.handle = request.session_handle(), .devices = options_.devices};
  session.master_task = request.master_task();
  session.master_incarnation = request.master_incarnation();
  session.opened = options_.clock->Now();
  session.resources = request.isolate_session_state() ? std::make_shared<ResourceManager>() : options_.resources;
  MutexLock lock(&mu_);
  if (!going_down_.ok()) return going_down_;
  const auto found = sessions_.find(request.session_handle());
  if (found != sessions_.end()) return found->second;
  if (closed_sessions_.Contains(HashOf(session.handle))) {
    return Aborted("session '", session.handle, "' was closed on ", options_.task.name(), " before it was made there");
  }
  const pb::ServerDef& server = request.server_def();
  if (server.cluster().job_size() == 0) {
    session.peers = legacy_session_->peers();
  } else {
    // A cluster of the session's own, in which this task may go by another name.
    MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::FromDef(server.cluster()));
    const TaskId self{server.job_name(), server.task_index()};
    MR_RETURN_IF_ERROR(cluster.Address(self).status());
    session.peers = std::make_shared<PeerSet>(cluster, self, options_.transport, options_.liveness);
    if (!(self == options_.task)) {
      session.devices.clear();
      for (const auto& device : options_.devices) session.devices.push_back(RenameDevice(device, self.name()));
    }
  }
  std::string handle = session.handle;
  return sessions_.emplace(std::move(handle), std::make_shared<WorkerSession>(std::move(session))).first->second;
}

void Worker::CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request, DoneStatus done) {
  if (request.session_handle().empty()) return done(InvalidArgument("a worker session needs a handle"));
  StatusOr<std::shared_ptr<WorkerSession>> session = MakeSession(request);
  if (session.ok() && control.from != nullptr) {
    (*session)->lease()->Touch(*control.from);
    leases_->Poke();
  }
  done(session.status());
}

void Worker::DeleteWorkerSession(const CallControl&, const std::string& handle, DoneStatus done) {
  std::shared_ptr<WorkerSession> session;
  std::map<int64_t, RefPtr<StepRendezvous>> steps;
  {
    MutexLock lock(&mu_);
    if (auto node = sessions_.extract(handle); !node.empty()) session = std::move(node.mapped());
    closed_sessions_.Insert(HashOf(handle));
    absl::erase_if(steps_, [&](auto& entry) {
      if (handle.empty() || entry.second.session != handle) return false;
      steps[entry.first] = std::move(entry.second.rendezvous);
      return true;
    });
    for (const auto& [id, step] : steps) ended_steps_.Insert(id);
  }
  for (const auto& [id, step] : steps) step->Abort(Cancelled("the session was closed"));
  if (session != nullptr) session->DeregisterAll();
  if (session != nullptr && options_.on_session_end != nullptr) options_.on_session_end();
  done(absl::OkStatus());
}

StatusOr<std::shared_ptr<WorkerSession>> Worker::FindSession(const std::string& handle, bool created) const {
  MutexLock lock(&mu_);
  if (!going_down_.ok()) return going_down_;
  if (handle.empty() || !created) return legacy_session_;
  const auto it = sessions_.find(handle);
  if (it != sessions_.end()) return it->second;
  return Aborted("task ", options_.task.name(), " does not know session '", handle,
                 "': it was restarted since, or the session is closed");
}

void Worker::RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request, Done<pb::RegisterGraphResponse> done) {
  StatusOr<std::shared_ptr<WorkerSession>> session =
      FindSession(request.session_handle(), request.create_worker_session_called());
  if (!session.ok()) return done(session.status());
  if (control.from != nullptr) (*session)->lease()->Touch(*control.from);
  const bool plain = request.config_proto().graph_options().optimizer_options().opt_level() == pb::OptimizerOptions::L0;
  auto graph = std::make_unique<Graph>();
  if (Status status = ImportGraphDef(std::move(*request.mutable_graph_def()), graph.get()); !status.ok()) {
    return done(status);
  }
  PassContext context;
  RunAllOf(*graph, &context);
  StatusOr<std::shared_ptr<RegisteredGraph>> compiled =
      (*session)->Compile(std::move(graph), std::move(context), plain ? PassOptions::None() : PassOptions());
  if (!compiled.ok()) return done(compiled.status());
  const Graph& part = (*compiled)->plan->graph();
  pb::RegisterGraphResponse response;
  response.set_graph_handle((*session)->Register(*compiled));
  PrepareSenders(part, *(*session)->peers(), (*session)->master(),
                 [response = std::move(response), done = std::move(done)]() mutable { done(std::move(response)); });
}

void Worker::DeregisterGraph(const CallControl&, pb::DeregisterGraphRequest request, DoneStatus done) {
  StatusOr<std::shared_ptr<WorkerSession>> session =
      FindSession(request.session_handle(), request.create_worker_session_called());
  done(session.ok() ? (*session)->Deregister(request.graph_handle()) : session.status());
}

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
  const std::shared_ptr<RegisteredGraph> ran = run.graph;
  Run(std::move(run), [self = shared_from_this(), rendezvous, ran, call = std::move(call), answer = std::move(answer),
                       cancellation = control.cancellation, owner = control.owner, done = std::move(done)](PartResult result) mutable {
    result.status = CauseOf(std::move(result.status), cancellation);
    self->FinishRunGraph(call, ran->late_reads, *rendezvous, *answer, std::move(result));
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

void Worker::FinishRunGraph(const RunGraphCall& call, absl::Span<const LateRead> late_reads, StepRendezvous& rendezvous, RunGraphAnswer& answer,
                            PartResult result) {
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
  for (size_t i = 0; i < result.late_reads.size(); ++i) {
    for (auto& [key, tensor] : answer.recv) {
      if (key == late_reads[i].key) tensor = result.late_reads[i];
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

void Worker::CleanupAll(const CallControl&, std::vector<std::string> containers, DoneStatus done) {
  if (containers.empty()) containers.push_back(ResourceManager::kDefaultContainer);
  for (const std::string& container : containers) {
    options_.resources->ClearContainer(container.empty() ? ResourceManager::kDefaultContainer : container);
  }
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

std::vector<std::shared_ptr<WorkerSession>> Worker::ListSessions() const {
  std::vector<std::shared_ptr<WorkerSession>> sessions;
  MutexLock lock(&mu_);
  for (const auto& [handle, session] : sessions_) sessions.push_back(session);
  return sessions;
}

std::vector<Wait> Worker::ListWaits() const {
  std::vector<Wait> waits = options_.waits->List();
  std::vector<RefPtr<StepRendezvous>> steps;
  {
    MutexLock lock(&mu_);
    steps = Rendezvous();
  }
  for (const RefPtr<StepRendezvous>& step : steps) step->ListWaits(&waits);
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
  return waits;
}

std::vector<int64_t> Worker::ListSteps() const {
  std::vector<int64_t> ids;
  MutexLock lock(&mu_);
  for (const auto& [id, step] : steps_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<RefPtr<StepRendezvous>> Worker::Rendezvous() const {
  std::map<int64_t, RefPtr<StepRendezvous>> ordered;
  for (const auto& [id, step] : steps_) ordered[id] = step.rendezvous;
  std::vector<RefPtr<StepRendezvous>> all;
  for (auto& [id, rendezvous] : ordered) all.push_back(std::move(rendezvous));
  return all;
}

std::vector<LeasedSession> Worker::ListLeased() {
  absl::flat_hash_set<std::string> busy;
  for (RunningPart& part : ListRunning()) busy.insert(std::move(part.session));
  std::vector<LeasedSession> leased;
  for (const std::shared_ptr<WorkerSession>& session : ListSessions()) {
    leased.push_back({.handle = session->handle(), .lease = session->lease(), .idle = !busy.contains(session->handle())});
  }
  return leased;
}

void Worker::Expire(const std::string& handle, const Status&) { DeleteWorkerSession({}, handle, [](Status) {}); }

bool Worker::ListAwaited(std::vector<Awaited>* peers) {
  MutexLock lock(&mu_);
  for (auto& [id, step] : steps_) step.rendezvous->ListAwaited(peers);
  return running_ != nullptr;
}

void Worker::OnPeerLost(const Awaited& peer, const Status& why) {
  std::vector<RefPtr<StepRendezvous>> steps;
  {
    MutexLock lock(&mu_);
    steps = Rendezvous();
  }
  for (const RefPtr<StepRendezvous>& step : steps) step->AbortIfAwaiting(peer.task, why);
}

RefPtr<StepArena> Worker::TakeArena() {
  MutexLock lock(&mu_);
  if (idle_arenas_.empty()) return MakeRef<StepArena>();
  RefPtr<StepArena> arena = std::move(idle_arenas_.back());
  idle_arenas_.pop_back();
  return arena;
}

void Worker::GiveBack(RefPtr<StepArena> arena) {
  MutexLock lock(&mu_);
  if (idle_arenas_.size() < kIdleArenas) idle_arenas_.push_back(std::move(arena));
}

}  // namespace millrace
