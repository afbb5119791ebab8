#include "millrace/cluster/master/master.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "millrace/base/fan_in.h"
#include "millrace/base/log.h"
#include "millrace/cluster/master/find_tasks.h"
#include "millrace/graph/device_name.h"
#include "millrace/task/local_devices.h"

namespace millrace {
namespace {

uint64_t MachineRandom() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

MasterOptions WithRandom(MasterOptions options) {
  if (options.random == nullptr) options.random = MachineRandom;
  return options;
}

// Fields that the session's config does not set are taken from the server's.
pb::ConfigProto Merged(const pb::ConfigProto& defaults, const pb::ConfigProto& config) {
  pb::ConfigProto merged = defaults;
  merged.MergeFrom(config);
  if (config.device_filters_size() > 0) *merged.mutable_device_filters() = config.device_filters();
  return merged;
}

}  // namespace

Master::Master(MasterOptions options) : options_(WithRandom(std::move(options))) {}

std::shared_ptr<Master> Master::Make(MasterOptions options) {
  std::shared_ptr<Master> master(new Master(std::move(options)));
  master->liveness_ = LivenessMonitor::Make(master->options_.liveness, std::weak_ptr<LivenessClient>(master));
  master->leases_ = LeaseMonitor::Make(master->options_.lease, std::weak_ptr<LeaseClient>(master));
  return master;
}

namespace {

// device_count={'GPU': n} of the session: of each task it uses the first n GPUs.
void KeepGpus(int n, std::vector<SessionTask>* tasks) {
  for (SessionTask& task : *tasks) {
    int seen = 0;
    std::erase_if(task.devices,
                  [&](const pb::DeviceAttributes& device) { return device.device_type() == "GPU" && seen++ >= n; });
  }
}

// PERMISSION_DENIED if a client's cluster has an address that is not in ours.
Status CheckAddresses(const ClusterSpec& clients, const ClusterSpec& ours) {
  absl::flat_hash_set<std::string> known;
  for (const TaskId& task : ours.tasks()) known.insert(ours.Address(task).value_or(""));
  for (const TaskId& task : clients.tasks()) {
    const std::string address = clients.Address(task).value_or("");
    if (known.contains(address)) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("the session's ClusterDef has ", address,
                     ", which is not in this server's cluster; --client_clusters (ServerOptions::client_clusters) lets "
                     "clients bring clusters of their own"));
  }
  return absl::OkStatus();
}

}  // namespace

// Handles a CreateSession request, until every task knows the session.
class Master::SessionCreation : public std::enable_shared_from_this<SessionCreation> {
 public:
  SessionCreation(std::shared_ptr<Master> master, pb::CreateSessionRequest request, const CallControl& control,
                  Done<pb::CreateSessionResponse> done)
      : master_(std::move(master)),
        graph_(std::move(*request.mutable_graph_def())),
        control_(control),
        done_(std::move(done)) {
    session_.config = Merged(master_->options_.default_config, request.config());
    session_.handle = absl::StrFormat("%016x", master_->options_.random());
    // Below 2^56, so that the step ids counted from it stay valid for TensorFlow.
    session_.first_step_id = static_cast<int64_t>(master_->options_.random() >> 8);
    session_.worker = master_->options_.worker;
    session_.timers = master_->options_.timers;
    session_.ended_steps = master_->ended_steps_;
    session_.on_remote_step = [monitor = master_->liveness_] { monitor->Poke(); };
  }

  void Start() {
    const WorkerOptions& worker = session_.worker->options();
    pb::CreateWorkerSessionRequest request = RequestFor(worker.id);
    if (session_.config.has_cluster_def()) {
      StatusOr<TaskId> self = OwnTask();
      if (!self.ok()) return done_(self.status());
      request = RequestFor(*self);
    }
    StatusOr<std::shared_ptr<WorkerSession>> own = session_.worker->MakeSession(request);
    if (!own.ok()) return done_(own.status());
    session_.worker_session = *std::move(own);
    session_.peers = session_.worker_session->peers();
    FindTasksOptions find{.worker = session_.worker, .peers = session_.peers};
    find.device_filters.assign(session_.config.device_filters().begin(), session_.config.device_filters().end());
    find.timeout = master_->options_.missing_task_timeout;
    if (control_.timeout != absl::InfiniteDuration()) {
      // Slightly before the client's timeout, so that the client learns which tasks are missing.
      find.timeout = control_.timeout - std::min(control_.timeout / 10, absl::Milliseconds(250));
    } else if (session_.config.operation_timeout_in_ms() > 0) {
      find.timeout = absl::Milliseconds(session_.config.operation_timeout_in_ms());
    }
    find.peer_timeout = master_->options_.liveness.peer_timeout;
    find.timers = session_.timers;
    find.clock = session_.worker->task().clock();
    FindTasks(find, control_, [self = shared_from_this()](StatusOr<std::vector<SessionTask>> tasks) {
      if (!tasks.ok()) return self->Fail(tasks.status());
      self->session_.tasks = *std::move(tasks);
      const auto& counts = self->session_.config.device_count();
      if (const auto gpus = counts.find("GPU"); gpus != counts.end()) KeepGpus(gpus->second, &self->session_.tasks);
      self->WarnOfGpuOptions();
      self->MakeWorkerSessions();
    });
  }

 private:
  // The devices of a task are those that it was started with.
  void WarnOfGpuOptions() const {
    const StatusOr<GpuOptions> gpus = GpuOptionsOf(session_.config.gpu_options());
    const auto& own = session_.worker->task().devices();
    const bool has_gpus = std::any_of(own.begin(), own.end(), [](const auto& d) { return d->type() == "GPU"; });
    if (has_gpus && !(gpus.ok() && gpus->is_default())) {
      MR_LOG(Warning, "the gpu_options of a session do not change the GPUs of a server that is running; ",
             "give them to the server (ServerOptions::default_config, millrace serve --gpu_memory_limit, ",
             "--virtual_gpus)");
    }
  }

  // This task in a cluster spec that the client sent: the task of the same name, or the one with this task's address.
  StatusOr<TaskId> OwnTask() const {
    MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::FromDef(session_.config.cluster_def()));
    const WorkerOptions& worker = session_.worker->options();
    if (!master_->options_.client_clusters) MR_RETURN_IF_ERROR(CheckAddresses(cluster, worker.cluster));
    if (cluster.Has(worker.id)) return worker.id;
    const StatusOr<std::string> address = worker.cluster.Address(worker.id);
    for (const TaskId& task : cluster.tasks()) {
      if (address.ok() && *cluster.Address(task) == *address) return task;
    }
    return InvalidArgument("the cluster of the session has neither ", worker.id.name(), " nor a task at ",
                           address.ok() ? *address : "its address", ": it is ", cluster.ToString());
  }

  pb::CreateWorkerSessionRequest RequestFor(const TaskId& task) const {
    pb::CreateWorkerSessionRequest request;
    request.set_session_handle(session_.handle);
    request.set_isolate_session_state(session_.config.isolate_session_state());
    pb::ServerDef* server = request.mutable_server_def();
    server->set_protocol("grpc");
    server->set_job_name(task.job);
    server->set_task_index(task.index);
    if (session_.config.has_cluster_def()) *server->mutable_cluster() = session_.config.cluster_def();
    const std::string& leader = session_.config.experimental().collective_group_leader();
    if (!leader.empty()) {
      server->mutable_default_session_config()->mutable_experimental()->set_collective_group_leader(leader);
    }
    request.set_master_task(session_.worker->task().name());
    request.set_master_incarnation(static_cast<int64_t>(session_.worker->task().devices()[0]->incarnation()));
    return request;
  }

  void MakeWorkerSessions() {
    auto all = std::make_shared<FanIn>(session_.tasks.size(), [self = shared_from_this()](Status status) {
      if (!status.ok()) return self->Fail(status);
      self->Finish();
    });
    for (const SessionTask& task : session_.tasks) {
      if (task.peer == nullptr) {
        all->Arrive();
      } else {
        // Sets up the transport of its steps before the first of them.
        const Peer* const peer = task.peer;
        pb::CreateWorkerSessionRequest request = RequestFor(peer->id);
        std::vector<int64_t> ended = session_.ended_steps->Of(peer->address);
        request.mutable_millrace_ended_steps()->Assign(ended.begin(), ended.end());
        peer->worker->CreateWorkerSession(
            {.cancellation = control_.cancellation, .owner = control_.owner}, std::move(request),
            [self = shared_from_this(), all, peer, ended = std::move(ended)](Status status) {
              if (!status.ok()) return all->Arrive(status);
              self->session_.ended_steps->Acknowledged(peer->address, ended);
              peer->worker->Prepare([all] { all->Arrive(); });
            });
      }
    }
  }

  void Finish() {
    auto session = std::make_shared<MasterSession>(std::move(session_));
    Status status = session->Begin(std::move(graph_));
    // The client will not learn of the session, so nobody else would close it.
    if (status.ok() && control_.cancellation != nullptr && control_.cancellation->IsCancelled()) {
      status = Cancelled("the client gave up on the session");
    }
    if (status.ok()) status = master_->Add(session);
    if (!status.ok()) {
      return session->Close(status, [self = shared_from_this(), status] { self->done_(status); });
    }
    pb::CreateSessionResponse response;
    response.set_session_handle(session->handle());
    done_(std::move(response));
  }

  void Fail(const Status& status) {
    for (const SessionTask& task : session_.tasks) {
      if (task.peer == nullptr) continue;
      task.peer->worker->DeleteWorkerSession({.timeout = absl::Seconds(10)}, session_.handle, [](Status) {});
    }
    session_.worker->DeleteWorkerSession({}, session_.handle, [](Status) {});
    done_(status);
  }

  const std::shared_ptr<Master> master_;
  pb::GraphDef graph_;
  const CallControl control_;
  Done<pb::CreateSessionResponse> done_;
  MasterSessionOptions session_;
};

void Master::CreateSession(pb::CreateSessionRequest request, const CallControl& control,
                           Done<pb::CreateSessionResponse> done) {
  Status refused;
  {
    MutexLock lock(&mu_);
    refused = going_down_;
  }
  if (!refused.ok()) return done(std::move(refused));
  std::make_shared<SessionCreation>(shared_from_this(), std::move(request), control, std::move(done))->Start();
}

Status Master::Add(std::shared_ptr<MasterSession> session) {
  MutexLock lock(&mu_);
  if (!going_down_.ok()) return going_down_;
  sessions_[session->handle()] = std::move(session);
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<MasterSession>> Master::Find(const std::string& handle) const {
  MutexLock lock(&mu_);
  const auto it = sessions_.find(handle);
  if (it != sessions_.end()) return it->second;
  if (!going_down_.ok()) return going_down_;
  return Aborted("Session handle is not found: session '", handle, "' is not known at ", options_.worker->task().name(),
                 ": it was closed or reset, its client's connection had ended, or the task was restarted");
}

std::shared_ptr<MasterSession> Master::Take(const std::string& handle) {
  MutexLock lock(&mu_);
  auto node = sessions_.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void Master::Expire(const std::string& handle, const Status& why) {
  if (const std::shared_ptr<MasterSession> session = Take(handle)) session->Close(why, [] {});
}

void Master::CloseSession(const std::string& handle, DoneStatus done) {
  const std::shared_ptr<MasterSession> session = Take(handle);
  if (session == nullptr) return done(Find(handle).status());
  session->Close(Cancelled("the step was cancelled: the session was closed while it ran (Session::Close)"),
                 [done = std::move(done)]() mutable { done(absl::OkStatus()); });
}

void Master::Reset(pb::ResetRequest request, const CallControl& control, DoneStatus done) {
  std::vector<std::shared_ptr<MasterSession>> closing;
  {
    MutexLock lock(&mu_);
    closing = Ordered();
    sessions_.clear();
  }
  const std::vector<std::string> containers(request.container().begin(), request.container().end());
  const WorkerOptions& worker = options_.worker->options();
  const PeerSet peers(worker.cluster, worker.id, worker.transport, worker.liveness);
  std::vector<std::shared_ptr<WorkerInterface>> workers = {options_.worker};
  for (const Peer& peer : peers.all()) {
    const DeviceName name{.job = peer.id.job, .replica = 0, .task = peer.id.index, .type = {}, .index = {}};
    bool wanted = request.device_filters_size() == 0;
    for (const std::string& text : request.device_filters()) {
      StatusOr<DeviceName> filter = DeviceName::Parse(text);
      if (!filter.ok()) return done(filter.status());
      filter->type.reset();
      filter->index.reset();
      wanted |= filter->Matches(name);
    }
    if (wanted) workers.push_back(peer.worker);
  }
  // State is cleared when the steps that use it have ended.
  auto cleanup = std::make_shared<FanIn>(workers.size(), std::move(done));
  auto closed = std::make_shared<FanIn>(closing.size() + 1, [workers, containers, cleanup](Status) {
    for (const std::shared_ptr<WorkerInterface>& task : workers) {
      task->CleanupAll({.timeout = absl::Seconds(10)}, containers,
                       [cleanup](Status status) { cleanup->Arrive(status); });
    }
  });
  for (const std::shared_ptr<MasterSession>& session : closing) {
    session->Close(Aborted("the session was reset"), [closed] { closed->Arrive(); });
  }
  closed->Arrive();
}

void Master::ListDevices(const std::string& handle, const CallControl& control, Done<pb::ListDevicesResponse> done) {
  if (!handle.empty()) {
    StatusOr<std::shared_ptr<MasterSession>> session = Find(handle);
    if (!session.ok()) return done(session.status());
    return done((*session)->ListDevices());
  }
  const WorkerOptions& worker = options_.worker->options();
  FindTasksOptions find{
      .worker = options_.worker,
      .peers = std::make_shared<PeerSet>(worker.cluster, worker.id, worker.transport, worker.liveness)};
  find.timeout = options_.missing_task_timeout;
  find.peer_timeout = options_.liveness.peer_timeout;
  find.timers = options_.timers;
  find.clock = options_.worker->task().clock();
  const std::shared_ptr<const PeerSet> peers = find.peers;
  FindTasks(find, control, [peers, done = std::move(done)](StatusOr<std::vector<SessionTask>> tasks) mutable {
    if (!tasks.ok()) return done(tasks.status());
    pb::ListDevicesResponse response;
    for (const SessionTask& task : *tasks) {
      for (const pb::DeviceAttributes& device : task.devices) {
        *(task.peer == nullptr ? response.add_local_device() : response.add_remote_device()) = device;
      }
    }
    done(std::move(response));
  });
}

std::vector<LeasedSession> Master::ListLeased() {
  std::vector<LeasedSession> leased;
  for (const std::shared_ptr<MasterSession>& session : sessions()) {
    leased.push_back({.handle = session->handle(), .lease = session->lease(), .idle = session->IsIdle()});
  }
  return leased;
}

void Master::Lease(const std::string& handle, const net::IncomingCall& call) {
  if (StatusOr<std::shared_ptr<MasterSession>> session = Find(handle); session.ok()) (*session)->lease()->Touch(call);
  leases_->Poke();
}

void Master::Shutdown(const Status& why) {
  leases_->Stop();
  std::vector<std::shared_ptr<MasterSession>> sessions;
  {
    MutexLock lock(&mu_);
    if (going_down_.ok()) going_down_ = why;
    sessions = Ordered();
    sessions_.clear();
  }
  for (const std::shared_ptr<MasterSession>& session : sessions) session->Close(why, [] {});
}

std::vector<std::shared_ptr<MasterSession>> Master::sessions() const {
  MutexLock lock(&mu_);
  return Ordered();
}

std::vector<std::shared_ptr<MasterSession>> Master::Ordered() const {
  std::vector<std::shared_ptr<MasterSession>> all;
  for (const auto& [handle, session] : sessions_) all.push_back(session);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->handle() < b->handle(); });
  return all;
}

bool Master::ListAwaited(std::vector<Awaited>* peers) {
  bool more = false;
  for (const std::shared_ptr<MasterSession>& session : sessions()) more |= session->ListPeers(peers);
  return more;
}

void Master::OnPeerLost(const Awaited& peer, const Status& why) {
  for (const std::shared_ptr<MasterSession>& session : sessions()) session->OnPeerLost(peer, why);
}

}  // namespace millrace
