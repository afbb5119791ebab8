// Utilities for tests of servers. For tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/base/fd.h"
#include "millrace/cluster/server.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {

// Distinct free ports of the loopback interface. They are below the ephemeral range, so that no outgoing connection
// takes one before it is used.
inline std::vector<int> FreePorts(size_t count) {
  static constexpr int kFirst = 10200, kEnd = 32000;
  std::random_device random;
  std::vector<Fd> sockets;
  std::vector<int> ports;
  for (int tries = 0; ports.size() < count && tries < 10'000; ++tries) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = kFirst + static_cast<int>(random() % (kEnd - kFirst));
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) continue;
    sockets.push_back(std::move(fd));
    ports.push_back(port);
  }
  EXPECT_EQ(ports.size(), count) << "no free ports";
  return ports;
}

// Starts one server for each task, job by job: StartServers({{"ps", 1}, {"worker", 2}}).
inline std::vector<std::unique_ptr<Server>> StartServers(const std::map<std::string, int>& jobs,
                                                         const ServerOptions& options = {}) {
  size_t count = 0;
  for (const auto& [job, tasks] : jobs) count += tasks;
  const std::vector<int> ports = FreePorts(count);
  std::map<std::string, std::vector<std::string>> addresses;
  for (const auto& [job, tasks] : jobs) {
    for (int i = 0; i < tasks; ++i) addresses[job].push_back(absl::StrCat("localhost:", ports[--count]));
  }
  const ClusterSpec cluster = ClusterSpec::Of(addresses).value();
  std::vector<std::unique_ptr<Server>> servers;
  for (const TaskId& task : cluster.tasks())
    servers.push_back(Server::Start(cluster, task.job, task.index, options).value());
  return servers;
}

// Options for a session that uses the network, like a client in another process.
inline SessionOptions OverTheNetwork(const Server& server) {
  SessionOptions options{.target = server.target()};
  options.config.mutable_rpc_options()->set_use_rpc_for_inprocess_master(true);
  return options;
}

inline std::unique_ptr<Session> OpenSession(const SessionOptions& options, const Graph& graph) {
  StatusOr<std::unique_ptr<Session>> session = Session::Create(options);
  EXPECT_EQ(session.status(), absl::OkStatus());
  EXPECT_EQ((*session)->Extend(graph), absl::OkStatus());
  return *std::move(session);
}

// Adds a step that blocks on the queue "numbers" at `queue_device`; `y` at `device` needs its element.
inline void AddBlockedStep(GraphBuilder* b, const std::string& queue_device, const std::string& device) {
  b->device = queue_device;
  const std::vector<DType> types = {DType::kFloat};
  const Endpoint queue = b->Op("FIFOQueueV2", {}, {{"component_types", types}, {"shared_name", "numbers"}}, "queue");
  const Endpoint element = b->Op("QueueDequeueV2", {queue}, {{"component_types", types}}, "take");
  b->device = device;
  b->Op("Identity", {element}, {}, "y");
}

// Runs a step on a thread of its own. Call End once.
class BackgroundRun {
 public:
  BackgroundRun(Session* session, std::string fetch)
      : thread_([this, session, fetch = std::move(fetch)] { status_ = session->Run({fetch}).status(); }) {}
  ~BackgroundRun() {
    if (thread_.joinable()) thread_.join();
  }
  Status End() {
    thread_.join();
    return status_;
  }

 private:
  Status status_;
  std::thread thread_;
};

// Waits until `reached` returns true; returns false if that takes longer than half a minute.
inline bool Await(const std::function<bool()>& reached) {
  Notification never;
  for (int i = 0; i < 6000; ++i) {
    if (reached()) return true;
    never.WaitFor(absl::Milliseconds(5));
  }
  return reached();
}

}  // namespace millrace
