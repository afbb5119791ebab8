#include "millrace/cluster/server.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/descriptor_limit.h"
#include "millrace/base/launcher_pipe.h"
#include "millrace/base/log.h"
#include "millrace/base/thread_group.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/cluster/client/server_session.h"
#include "millrace/cluster/cluster_transport.h"
#include "millrace/cluster/free_memory.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/server_access.h"
#include "millrace/cluster/task_service.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/collective/service.h"
#include "millrace/net/address.h"
#include "millrace/task/local_devices.h"
#include "millrace/task/task.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {
namespace {

// The part of a grace period that a server serves on, and how often it looks whether it still has to.
constexpr double kServeOut = 0.8;
constexpr absl::Duration kLookForSessions = absl::Milliseconds(50);
// How long a client whose connections have all ended may take to connect again.
constexpr absl::Duration kReturn = absl::Seconds(2);

}  // namespace

struct Server::State {
  // The server's task. Others may hold it for longer, but its threads end here.
  struct OwnTask {
    ~OwnTask() {
      if (task != nullptr) task->StopThreads();
    }
    std::shared_ptr<Task> task;
  };

  void StopAll();
  // DEADLINE_EXCEEDED with what is running.
  Status StillRunning() const;

  TaskId id;
  ClusterSpec cluster;
  std::string target;
  ServerAccess access;
  // Later members use earlier ones.
  std::unique_ptr<net::Transport> own_transport;
  net::Transport* transport = nullptr;
  OwnTask own;
  std::shared_ptr<FreeMemoryReturn> free_memory;
  std::shared_ptr<Worker> worker;
  std::shared_ptr<Master> master;
  collective::CollectiveService collectives;
  std::unique_ptr<TaskService> service;
  std::unique_ptr<net::Listener> listener;
  Notification stopped;
  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

StatusOr<std::unique_ptr<Server>> Server::Start(const ClusterSpec& cluster, const std::string& job_name, int task_index,
                                                const ServerOptions& options) {
  if (options.intra_op_threads < 0 || options.inter_op_threads < 0)
    return InvalidArgument("the number of threads is negative");
  if (options.file_threads < 1)
    return InvalidArgument("file_threads is ", options.file_threads, "; a task needs at least one");
  if (options.cpu_devices < 1)
    return InvalidArgument("cpu_devices is ", options.cpu_devices, "; a task needs at least one");
  RaiseDescriptorLimit();
  auto state = std::make_unique<State>();
  state->id = {job_name, task_index};
  state->cluster = cluster;
  MR_ASSIGN_OR_RETURN(const std::string address, cluster.Address(state->id));
  MR_ASSIGN_OR_RETURN(const net::HostPort host_port, net::ParseHostPort(address));
  net::Transport* transport = options.transport;
  ServerAccess access{.file_roots = options.file_roots, .client_clusters = options.client_clusters.value_or(true)};
  if (transport == nullptr) {
    MR_ASSIGN_OR_RETURN(access, FindServerAccess(host_port, options));
    MR_ASSIGN_OR_RETURN(state->own_transport, NewClusterTransport(options.step_transport, {.tls = access.tls}));
    transport = state->own_transport.get();
  }
  state->access = access;
  state->transport = transport;
  if (options.memory_limit > 0) MemoryBudget::Process()->set_limit(options.memory_limit);
  MR_ASSIGN_OR_RETURN(GpuOptions gpus, GpuOptionsOf(options.default_config.gpu_options()));
  if (options.gpu_memory_limit > 0) gpus.memory_limit = static_cast<int64_t>(options.gpu_memory_limit);
  MR_ASSIGN_OR_RETURN(state->own.task, Task::Make({.name = state->id.name(),
                                                   .intra_op_threads = options.intra_op_threads,
                                                   .inter_op_threads = options.inter_op_threads,
                                                   .cpu_devices = options.cpu_devices,
                                                   .gpu_devices = options.gpu_devices,
                                                   .gpus = std::move(gpus),
                                                   .file_roots = access.file_roots,
                                                   .no_files = access.no_files,
                                                   .session_memory_limit = options.session_memory_limit,
                                                   .file_threads = options.file_threads,
                                                   .clock = options.clock}));
  Scheduler* const inter_op = state->own.task->inter_op();
  WorkerOptions worker{.task = state->own.task, .id = state->id, .transport = transport};
  worker.liveness.peer_timeout = options.peer_timeout;
  worker.cluster = cluster;
  if (const std::string& leader = options.default_config.experimental().collective_group_leader(); !leader.empty()) {
    MR_ASSIGN_OR_RETURN(worker.collective_group_leader, LeaderName(leader));
  }
  const auto tcp = std::make_shared<net::TcpConnectionTable>();
  LeaseOptions lease{.task = state->id.name(), .grace = options.session_grace, .connections = options.connections};
  if (lease.connections == nullptr) lease.connections = tcp;
  lease.scheduler = inter_op;
  worker.lease = lease;
  KeepFreedMemory();
  state->free_memory = FreeMemoryReturn::Make(TimerQueue::Real(), inter_op);
  worker.on_session_end = [free_memory = state->free_memory] { free_memory->Poke(); };
  state->worker = Worker::Make(std::move(worker));
  MasterOptions master{.worker = state->worker};
  master.liveness.peer_timeout = options.peer_timeout;
  master.default_config = options.default_config;
  master.missing_task_timeout = options.missing_task_timeout;
  master.lease = lease;
  master.client_clusters = access.client_clusters;
  state->master = Master::Make(std::move(master));
  state->service = std::make_unique<TaskService>(state->master, state->worker, options.clock);
  state->service->Add(&state->collectives);
  MR_ASSIGN_OR_RETURN(state->listener, transport->Listen(address, state->service.get()));
  const std::string bound = net::JoinHostPort(host_port.host, state->listener->port());
  tcp->set_local_port(state->listener->port());
  state->cluster.SetAddress(state->id, bound);
  state->service->status().set_cluster(state->cluster);
  state->target = absl::StrCat("grpc://", bound);
  LocalServer local = MakeLocalServer(state->master);
  local.task = state->id;
  local.cluster = state->cluster;
  local.waits = state->own.task->waits();
  RegisterLocalServer(state->target, std::move(local));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

StatusOr<std::unique_ptr<Server>> Server::CreateLocalServer(const ServerOptions& options) {
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Of({{"localhost", {"localhost:0"}}}));
  return Start(cluster, "localhost", 0, options);
}

Server::~Server() {
  const Status stopped = StopWithin(absl::Minutes(1));
  if (stopped.ok()) return;
  MR_LOG(Error, stopped.message());
  state_.release();  // what is stuck still uses it
}

const std::string& Server::target() const { return state_->target; }
const ServerAccess& Server::access() const { return state_->access; }
int Server::port() const { return state_->listener->port(); }
const TaskId& Server::task() const { return state_->id; }
const ClusterSpec& Server::cluster() const { return state_->cluster; }
net::Transport* Server::transport() const { return state_->transport; }
WaitRegistry* Server::waits() const { return state_->own.task->waits().get(); }
collective::CollectiveService* Server::collectives() const { return &state_->collectives; }
const std::shared_ptr<Master>& Server::master() const { return state_->master; }
const std::shared_ptr<Worker>& Server::worker() const { return state_->worker; }

std::vector<std::string> Server::devices() const {
  std::vector<std::string> names;
  for (const auto& device : state_->own.task->devices()) names.push_back(device->name());
  return names;
}

void Server::Join() { state_->stopped.Wait(); }

Notice Server::ServeUntilNotice() {
  const Notice notice = WaitForNotice();
  ServeOut(notice);
  Stop();
  return notice;
}

void Server::ServeOut(const Notice& notice) {
  if (HasLauncher() || std::getenv(kGraceVariable) == nullptr) return;
  const absl::Time deadline = Clock::Real()->Now() + kServeOut * notice.grace;
  absl::Time alone_since = absl::InfiniteFuture();
  bool told = false;
  while (!worker()->ListSessions().empty()) {
    const absl::Time now = Clock::Real()->Now();
    // A client that was killed closes nothing, and the last words of one that ended may not have come.
    alone_since = worker()->HasAttendedSession() ? absl::InfiniteFuture() : std::min(alone_since, now);
    if (now >= deadline || now - alone_since >= kReturn) return;
    if (!std::exchange(told, true))
      MR_LOG(Info, notice.SignalName(), ": ", task().name(), " serves until its sessions are closed, for ",
             absl::FormatDuration(absl::Trunc(deadline - now, absl::Milliseconds(100))), " at most");
    state_->stopped.WaitFor(std::min(deadline - now, kLookForSessions));
    if (state_->stopped.HasBeenNotified()) return;
  }
}

// Runs on a thread of its own, which may get stuck.
void Server::State::StopAll() {
  UnregisterLocalServer(target);
  const Status why = Unavailable("task ", id.name(), " is going down");
  master->Shutdown(why);
  Notification idle;
  worker->Shutdown(why, [&idle] { idle.Notify(); });
  listener->Stop();
  idle.Wait();
  free_memory->Stop();
  // Background work, such as a prefetching pipeline, ends before the threads do.
  worker->Clear();
  stopped.Notify();
}

Status Server::State::StillRunning() const {
  std::vector<std::string> what;
  for (const Wait& wait : worker->ListWaits())
    what.push_back(absl::StrCat(
        wait.node, ": ", wait.what, ", for ",
        absl::FormatDuration(absl::Trunc(own.task->clock()->Now() - wait.since, absl::Milliseconds(100)))));
  for (const RunningPart& part : worker->ListRunning()) what.push_back(absl::StrCat("a part of step ", part.step_id));
  return DeadlineExceeded("task ", id.name(), " does not stop; still running: ",
                          what.empty() ? "an operation without a name" : absl::StrJoin(what, "; "));
}

Status Server::StopWithin(absl::Duration patience) {
  State* const state = state_.get();
  bool first = false;
  {
    MutexLock lock(&state->mu);
    first = !std::exchange(state->stopping, true);
  }
  if (first && !StartDetachedThread("stop", [state] { state->StopAll(); })) state->StopAll();
  if (patience == absl::InfiniteDuration()) {
    state->stopped.Wait();
  } else if (!state->stopped.WaitFor(patience)) {
    return state->StillRunning();
  }
  return absl::OkStatus();
}

void Server::Stop() { StopWithin(absl::InfiniteDuration()).IgnoreError(); }

}  // namespace millrace
