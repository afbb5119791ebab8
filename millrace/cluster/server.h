// One task of a cluster in this process.
//
//   auto server = Server::Start(cluster, "worker", 0).value();
//   auto session = Session::Create({.target = server->target()}).value();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/net/connection_table.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"
#include "millrace/proto/config.pb.h"

namespace millrace {

class Master;
class Worker;

struct ServerOptions {
  // Threads for one wide op, and threads that run independent ops; 0 takes the number of cores.
  int intra_op_threads = 0;
  int inter_op_threads = 0;
  int cpu_devices = 1;
  // GPUs at most; -1 takes all that CUDA_VISIBLE_DEVICES leaves. A build without CUDA has none.
  int gpu_devices = -1;
  // The folders that ops may read and write files in; empty: all.
  std::vector<std::string> file_roots = {};
  // Mutual TLS for all that this task says and hears; null: neither encryption nor authentication.
  std::shared_ptr<const net::TlsCredentials> tls = nullptr;
  // How long a peer that a step waits for may stay silent.
  absl::Duration peer_timeout = absl::Seconds(5);
  // How long a session waits for tasks that are not there yet, where its client sets no limit.
  absl::Duration missing_task_timeout = absl::Minutes(10);
  // How long a session stays whose client's connection has ended and that runs no step; InfiniteDuration: until it is closed. A
  // client that lost its connection, not its life, comes back within this time or is told ABORTED. gRPC waits a second (TensorFlow's
  // clients up to 20 s) between two attempts to connect.
  absl::Duration session_grace = absl::Seconds(30);
  // What sessions that do not say otherwise get.
  pb::ConfigProto default_config = {};
  // What the messages of every step take between Millrace's tasks: "auto" (the fastest that both ends have), "shm", "tcp" or "grpc". Empty: what the
  // environment variable MILLRACE_TRANSPORT says, or "auto". Everything else goes over gRPC.
  std::string step_transport = {};
  // Instead of all that, when not null. Outlives the server.
  net::Transport* transport = nullptr;
  // This machine's TCP connections when null.
  std::shared_ptr<net::ConnectionTable> connections = nullptr;
  // What this task takes for the time, in its status and in traces of steps. For tests.
  Clock* clock = Clock::Real();
};

// The master and worker of its task, on the port that the cluster gives it. Thread-safe.
class Server {
 public:
  // Listens. INVALID_ARGUMENT or NOT_FOUND for a task that the cluster does not have; ALREADY_EXISTS for a port that is taken. Port 0 lets the
  // system choose.
  static StatusOr<std::unique_ptr<Server>> Start(const ClusterSpec& cluster, const std::string& job_name, int task_index,
                                                 const ServerOptions& options = {});
  // A cluster of one, "/job:localhost/task:0", on a free port of the loopback interface.
  static StatusOr<std::unique_ptr<Server>> CreateLocalServer(const ServerOptions& options = {});
  // As Stop.
  ~Server();

  // "grpc://host:port": what sessions are made with. In this process they cost no RPC.
  const std::string& target() const;
  int port() const;
  const TaskId& task() const;
  const ClusterSpec& cluster() const;  // with the port that was chosen
  std::vector<std::string> devices() const;

  // Waits for Stop.
  void Join();
  // Ends running steps with UNAVAILABLE, frees the port and returns when all is quiet. Any number of times.
  void Stop();

  const std::shared_ptr<Master>& master() const;
  const std::shared_ptr<Worker>& worker() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace millrace
