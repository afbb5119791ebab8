// The servers in this process, by target. A session to one of them needs no RPC.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/session/session.h"

namespace millrace {

struct LocalServer {
  std::function<StatusOr<std::unique_ptr<Session>>(const SessionOptions&)> create_session;
  // Clears the given containers, or all if none is given, and ends the server's sessions.
  std::function<Status(const std::vector<std::string>& containers, const std::vector<std::string>& device_filters)>
      reset = nullptr;
  // The server's task and cluster.
  TaskId task = {};
  ClusterSpec cluster = {};
  // The waits that the task's status lists; a client in the server's process adds its own waits. May be null.
  std::shared_ptr<WaitRegistry> waits = nullptr;
};

// `target` is Server::target(), "grpc://host:port". Thread-safe. The functions of a LocalServer may still be running
// when UnregisterLocalServer returns, so they must own what they need. Registering a target again replaces the server.
void RegisterLocalServer(const std::string& target, LocalServer server);
void UnregisterLocalServer(const std::string& target);
// Null if there is none.
std::shared_ptr<const LocalServer> FindLocalServer(const std::string& target);

}  // namespace millrace
