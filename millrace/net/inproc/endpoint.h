// The listeners within a process, by address.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/address.h"
#include "millrace/net/inproc/inproc_transport.h"

namespace millrace::net {

class InprocCall;

// The callers' view of a listener, which may outlive it. Thread-safe.
class InprocEndpoint {
 public:
  explicit InprocEndpoint(Service* service);

  Service* service() const { return service_; }
  // -1 if the service has no such method.
  int MethodIndex(const std::string& method) const;
  // A call arrives. Returns false if the listener has stopped.
  [[nodiscard]] bool Begin(InprocCall* call);
  // The call is answered and its OnCall has returned.
  void End(InprocCall* call);
  // As Listener::Stop.
  void Stop();

 private:
  Service* const service_;
  absl::flat_hash_map<std::string, int> methods_;
  Mutex mu_;
  CondVar empty_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<InprocCall*> calls_ ABSL_GUARDED_BY(mu_);
};

class InprocNetwork {
 public:
  // Returns the port; if the address has port 0, a free one is chosen.
  StatusOr<int> Add(const HostPort& address, std::shared_ptr<InprocEndpoint> endpoint);
  void Remove(const std::string& address);
  // Null if nothing listens there.
  std::shared_ptr<InprocEndpoint> Find(const std::string& address);

 private:
  Mutex mu_;
  int next_port_ ABSL_GUARDED_BY(mu_) = 10000;
  absl::flat_hash_map<std::string, std::shared_ptr<InprocEndpoint>> endpoints_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
