#include "millrace/cluster/server.h"

#include <utility>

#include "millrace/base/affinity.h"
#include "millrace/base/file.h"
#include "millrace/base/log.h"
#include "millrace/base/rooted_files.h"
#include "millrace/cluster/cluster_transport.h"
#include "millrace/cluster/free_memory.h"
#include "millrace/cluster/local_servers.h"
#include "millrace/cluster/master.h"
#include "millrace/cluster/server_session.h"
#include "millrace/cluster/task_service.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/device/cuda/cuda_devices.h"
#include "millrace/device/renamed_device.h"

namespace millrace {
namespace {

int OrCores(int threads) { return threads > 0 ? threads : AllowedCoreCount(); }

}  // namespace

struct Server::State {
  TaskId task;
  ClusterSpec cluster;
  std::string target;
  // In the order in which the later ones use the earlier ones.
  std::unique_ptr<net::Transport> own_transport;
  std::unique_ptr<FileSystem> rooted_files;
  std::unique_ptr<ThreadPool> inter_op;
  std::shared_ptr<FreeMemoryReturn> free_memory;
  std::shared_ptr<Worker> worker;
  std::shared_ptr<Master> master;
  std::unique_ptr<TaskService> service;
  std::unique_ptr<net::Listener> listener;
  Notification stopped;
  Mutex mu;
  bool stopping ABSL_GUARDED_BY(mu) = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

StatusOr<std::unique_ptr<Server>> Server::Start(const ClusterSpec& cluster, const std::string& job_name, int task_index,
                                                const ServerOptions& options) {
  if (options.intra_op_threads < 0 || options.inter_op_threads < 0) return InvalidArgument("the number of threads is negative");
  if (options.cpu_devices < 1) return InvalidArgument("cpu_devices is ", options.cpu_devices, "; a task needs at least one");
  auto state = std::make_unique<State>();
  state->task = {job_name, task_index};
  state->cluster = cluster;
  MR_ASSIGN_OR_RETURN(const std::string address, cluster.Address(state->task));
  MR_ASSIGN_OR_RETURN(const HostPort host_port, HostPort::Parse(address));
  net::Transport* transport = options.transport;
  if (transport == nullptr) {
    MR_ASSIGN_OR_RETURN(state->own_transport, NewClusterTransport(options.step_transport, {.tls = options.tls}));
    transport = state->own_transport.get();
  }
  WorkerOptions worker;
  worker.task = state->task;
  worker.transport = transport;
  auto pool = std::make_shared<ThreadPool>("intra_op", OrCores(options.intra_op_threads) - 1);
  for (int i = 0; i < options.cpu_devices; ++i) {
    worker.devices.push_back(NewCpuDevice({.name = absl::StrCat(state->task.name(), "/device:CPU:", i), .pool = pool}));
  }
  StatusOr<std::vector<std::unique_ptr<Device>>> gpus = NewCudaDevices({.count = options.gpu_devices});
  if (!gpus.ok()) MR_LOG(Error, "going on without GPUs: ", gpus.status().ToString());
  if (gpus.ok()) {
    for (auto& gpu : *gpus) worker.devices.push_back(RenameDevice(std::shared_ptr<Device>(std::move(gpu)), state->task.name()));
  }
  worker.resources = std::make_shared<ResourceManager>();
  worker.waits = std::make_shared<WaitRegistry>(options.clock);
  worker.clock = options.clock;
  if (!options.file_roots.empty()) state->rooted_files = std::make_unique<RootedFileSystem>(options.file_roots);
  worker.files = state->rooted_files != nullptr ? state->rooted_files.get() : FileSystem::Posix();
  state->inter_op = std::make_unique<ThreadPool>("inter_op", OrCores(options.inter_op_threads));
  worker.inter_op = state->inter_op.get();
  worker.liveness.silence = options.peer_timeout;
  worker.cluster = cluster;
  const auto tcp = std::make_shared<net::TcpConnectionTable>();
  LeaseOptions lease{.task = state->task.name(), .grace = options.session_grace, .connections = options.connections};
  if (lease.connections == nullptr) lease.connections = tcp;
  lease.scheduler = state->inter_op.get();
  worker.lease = lease;
  KeepFreedMemory();
  state->free_memory = FreeMemoryReturn::Make(TimerQueue::Real(), state->inter_op.get());
  worker.on_session_end = [free_memory = state->free_memory] { free_memory->Poke(); };
  state->worker = Worker::Make(std::move(worker));
  MasterOptions master{.worker = state->worker};
  master.liveness.silence = options.peer_timeout;
  master.default_config = options.default_config;
  master.missing_task_timeout = options.missing_task_timeout;
  master.lease = lease;
  state->master = Master::Make(std::move(master));
  state->service = std::make_unique<TaskService>(state->master, state->worker, options.clock);
  MR_ASSIGN_OR_RETURN(state->listener, transport->Listen(address, state->service.get()));
  const std::string bound = absl::StrCat(host_port.host, ":", state->listener->port());
  tcp->set_local_port(state->listener->port());
  state->cluster.SetAddress(state->task, bound);
  state->service->status().set_cluster(state->cluster);
  state->target = absl::StrCat("grpc://", bound);
  LocalServer local = LocalServerOf(state->master);
  local.task = state->task;
  local.cluster = state->cluster;
  local.waits = state->worker->options().waits;
  RegisterLocalServer(state->target, std::move(local));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

StatusOr<std::unique_ptr<Server>> Server::CreateLocalServer(const ServerOptions& options) {
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Of({{"localhost", {"localhost:0"}}}));
  return Start(cluster, "localhost", 0, options);
}

Server::~Server() { Stop(); }

const std::string& Server::target() const { return state_->target; }
int Server::port() const { return state_->listener->port(); }
const TaskId& Server::task() const { return state_->task; }
const ClusterSpec& Server::cluster() const { return state_->cluster; }
const std::shared_ptr<Master>& Server::master() const { return state_->master; }
const std::shared_ptr<Worker>& Server::worker() const { return state_->worker; }

std::vector<std::string> Server::devices() const {
  std::vector<std::string> names;
  for (const auto& device : state_->worker->options().devices) names.push_back(device->name());
  return names;
}

void Server::Join() { state_->stopped.Wait(); }

void Server::Stop() {
  bool first = false;
  {
    MutexLock lock(&state_->mu);
    first = !std::exchange(state_->stopping, true);
  }
  if (!first) return state_->stopped.Wait();
  UnregisterLocalServer(state_->target);
  const Status why = Unavailable("task ", state_->task.name(), " is going down");
  state_->master->Shutdown(why);
  Notification idle;
  state_->worker->Shutdown(why, [&idle] { idle.Notify(); });
  state_->listener->Stop();
  idle.Wait();
  state_->free_memory->Stop();
  // What works by itself, such as a pipeline that reads ahead, ends before the threads do.
  state_->worker->Clear();
  state_->stopped.Notify();
}

}  // namespace millrace
