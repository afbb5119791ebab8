#include "millrace/cluster/client/local_servers.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Servers {
  Mutex mu;
  absl::flat_hash_map<std::string, std::shared_ptr<const LocalServer>> by_target ABSL_GUARDED_BY(mu);
};

Servers& AllServers() {
  static Servers* const servers = new Servers;
  return *servers;
}

}  // namespace

void RegisterLocalServer(const std::string& target, LocalServer server) {
  auto shared = std::make_shared<const LocalServer>(std::move(server));
  MutexLock lock(&AllServers().mu);
  AllServers().by_target[target].swap(shared);
}

void UnregisterLocalServer(const std::string& target) {
  std::shared_ptr<const LocalServer> last;  // released without holding the lock
  MutexLock lock(&AllServers().mu);
  auto& servers = AllServers().by_target;
  if (auto it = servers.find(target); it != servers.end()) {
    last = std::move(it->second);
    servers.erase(it);
  }
}

std::shared_ptr<const LocalServer> FindLocalServer(const std::string& target) {
  MutexLock lock(&AllServers().mu);
  auto& servers = AllServers().by_target;
  const auto it = servers.find(target);
  return it == servers.end() ? nullptr : it->second;
}

}  // namespace millrace
