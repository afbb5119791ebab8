#include "millrace/cluster/worker.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "millrace/cluster/prepare_senders.h"
#include "millrace/device/renamed_device.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

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

void Worker::CleanupAll(const CallControl&, std::vector<std::string> containers, DoneStatus done) {
  if (containers.empty()) containers.push_back(ResourceManager::kDefaultContainer);
  for (const std::string& container : containers) {
    options_.resources->ClearContainer(container.empty() ? ResourceManager::kDefaultContainer : container);
  }
  done(absl::OkStatus());
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
