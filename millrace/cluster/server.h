// One task of a cluster in this process.
//
//   auto server = Server::Start(cluster, "worker", 0).value();
//   auto session = Session::Create({.target = server->target()}).value();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/notice.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/proto/config.pb.h"

namespace millrace {

class Master;
class Worker;
struct ServerAccess;
namespace collective {
class CollectiveService;
}
namespace net {
class ConnectionTable;
class Transport;
}  // namespace net
class WaitRegistry;

struct ServerOptions {
  // The number of threads within one op, and of threads that run ops concurrently; 0 means the number of cores.
  int intra_op_threads = 0;
  int inter_op_threads = 0;
  int cpu_devices = 1;
  // The maximum number of GPUs; -1 means all in CUDA_VISIBLE_DEVICES. Without libmillrace_cuda.so there are none.
  // `default_config.gpu_options` has which GPUs these are and how much of their memory is used, as in TensorFlow; the
  // first session or server of the process decides.
  int gpu_devices = -1;
  // The bytes that each GPU's tensors may take; 0: all of its memory.
  size_t gpu_memory_limit = 0;
  // The directories in which ops may read and write files; "/" stands for all files. If empty, those of the environment
  // variable MILLRACE_FILE_ROOT (separated by colons); without it, all files for a server on the loopback interface,
  // and none for one that other machines can reach.
  std::vector<std::string> file_roots = {};
  // The bytes that tensors may take in this process, and in each session (with what variables and queues keep of its
  // results); more is RESOURCE_EXHAUSTED. 0: the memory of the machine or of the cgroup, and no limit for a session.
  // The limit of the process is that of the last server that sets one.
  size_t memory_limit = 0;
  size_t session_memory_limit = 0;
  // How many operations on files run at once, on threads of their own: each may block for ever. The others wait in
  // line.
  int file_threads = 16;
  // Mutual TLS for all connections of this task. If null, the credentials in the folder that the environment variable
  // MILLRACE_TLS_DIR names (`millrace launch` sets it); without it, neither encryption nor authentication.
  std::shared_ptr<const TlsCredentials> tls = nullptr;
  // Serves without TLS, also beyond the loopback interface, where it is refused otherwise: anyone who can reach this
  // machine can then run graphs here. The environment variable MILLRACE_INSECURE=1 does the same.
  bool insecure = false;
  // Whether a client may bring a cluster of its own (ConfigProto.cluster_def), whose addresses this server then
  // connects to. If not set, only on the loopback interface without TLS. A ClusterDef that lists tasks of this server's
  // cluster only is always accepted.
  std::optional<bool> client_clusters = std::nullopt;
  // How long a peer may be silent before steps that wait for it fail.
  absl::Duration peer_timeout = absl::Seconds(5);
  // How long a new session waits for missing tasks, unless its client sets a limit.
  absl::Duration missing_task_timeout = absl::Minutes(10);
  // How long a session without running steps is kept after its client has disconnected; if infinite, until it is
  // closed. A client that lost only its connection must reconnect within this time, or it gets ABORTED. gRPC waits a
  // second (TensorFlow's clients up to 20 s) between two attempts to connect.
  absl::Duration session_grace = absl::Seconds(30);
  // The configuration of sessions that do not give one.
  pb::ConfigProto default_config = {};
  // The transport of step messages between Millrace tasks: "auto" (the fastest that both ends support), "shm", "tcp" or
  // "grpc". If empty, the environment variable MILLRACE_TRANSPORT is used, or "auto". Everything else goes over gRPC.
  std::string step_transport = {};
  // If not null, used instead of all of these. Must outlive the server.
  net::Transport* transport = nullptr;
  // Null uses this machine's TCP connections.
  std::shared_ptr<net::ConnectionTable> connections = nullptr;
  // The clock for this task's status and traces. For tests.
  Clock* clock = Clock::Real();
};

// Runs the master and the worker of a task at the task's address in the cluster. Thread-safe.
class Server {
 public:
  // Starts to listen. INVALID_ARGUMENT or NOT_FOUND if the cluster does not have the task; ALREADY_EXISTS if the port
  // is taken; FAILED_PRECONDITION if other machines could reach it without TLS (see `insecure`). With port 0 the system
  // chooses the port.
  static StatusOr<std::unique_ptr<Server>> Start(const ClusterSpec& cluster, const std::string& job_name,
                                                 int task_index, const ServerOptions& options = {});
  // A cluster of one task, "/job:localhost/task:0", on a free port of the loopback interface.
  static StatusOr<std::unique_ptr<Server>> CreateLocalServer(const ServerOptions& options = {});
  // Calls StopWithin a minute; what does not end by then is logged and keeps its memory.
  ~Server();

  // The target for sessions, "grpc://host:port". Sessions in this process make no RPCs to it.
  const std::string& target() const;
  int port() const;
  const TaskId& task() const;
  const ClusterSpec& cluster() const;  // with the port that the system chose, if any
  std::vector<std::string> devices() const;
  // What the options and the environment amount to (server_access.h).
  const ServerAccess& access() const;

  // Blocks until Stop.
  void Join();
  // For a task that only serves, such as a ps: blocks until a notice (base/notice.h), then as ServeOut, and stops.
  Notice ServeUntilNotice();
  // What a task that serves owes the others after a notice: they need it until they have saved. Without a launcher,
  // which has tasks that serve end last, it serves on while there are sessions whose clients are there, and for four
  // fifths of MILLRACE_GRACE at most. Returns immediately under a launcher, or if MILLRACE_GRACE is not set.
  void ServeOut(const Notice& notice);
  // Ends running steps with UNAVAILABLE, frees the port and returns when nothing runs any more. May be called
  // repeatedly.
  void Stop();
  // The same, but returns DEADLINE_EXCEEDED, which says what is still running, if that takes longer than `patience`: a
  // thread may be stuck in a system call that never returns. The server is then of no more use.
  Status StopWithin(absl::Duration patience);

  // What this task reaches others with, and what it waits for.
  net::Transport* transport() const;
  WaitRegistry* waits() const;
  // Where the groups of this task are found by their other ranks.
  collective::CollectiveService* collectives() const;
  const std::shared_ptr<Master>& master() const;
  const std::shared_ptr<Worker>& worker() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
