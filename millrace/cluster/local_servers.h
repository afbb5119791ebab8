// The servers in this process, by their targets: a session to one of them needs no RPC.
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
  // Clears the containers, all of them when none is named, and ends the server's sessions.
  std::function<Status(const std::vector<std::string>& containers, const std::vector<std::string>& device_filters)> reset = nullptr;
  // Which task it is, of which cluster.
  TaskId task = {};
  ClusterSpec cluster = {};
  // What the task waits for, as its status lists it: a client in the server's process adds what it waits for itself. May be null.
  std::shared_ptr<WaitRegistry> waits = nullptr;
};

// `target` as the server tells it: "grpc://host:port". Both functions may be called on any thread; the functions of a LocalServer may still run
// when UnregisterLocalServer returns, and hold what they need. A target that is registered already gets the new server.
void RegisterLocalServer(const std::string& target, LocalServer server);
void UnregisterLocalServer(const std::string& target);
// Null when there is none.
std::shared_ptr<const LocalServer> FindLocalServer(const std::string& target);

}  // namespace millrace
