#include "millrace/net/inproc/endpoint.h"

#include <utility>
#include <vector>

#include "millrace/net/inproc/call.h"

namespace millrace::net {

InprocEndpoint::InprocEndpoint(Service* service) : service_(service) {
  for (const std::string& method : service->methods()) methods_.emplace(method, static_cast<int>(methods_.size()));
}

int InprocEndpoint::MethodIndex(const std::string& method) const {
  const auto it = methods_.find(method);
  return it == methods_.end() ? -1 : it->second;
}

bool InprocEndpoint::Begin(InprocCall* call) {
  MutexLock lock(&mu_);
  if (stopping_) return false;
  calls_.insert(call);
  return true;
}

void InprocEndpoint::End(InprocCall* call) {
  MutexLock lock(&mu_);
  calls_.erase(call);
  if (calls_.empty()) empty_.SignalAll();
}

void InprocEndpoint::Stop() {
  std::vector<RefPtr<InprocCall>> calls;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (InprocCall* call : calls_) calls.push_back(ShareRef(call));
  }
  for (const auto& call : calls) call->cancellation()->StartCancel(Cancelled("the server is stopping"));
  MutexLock lock(&mu_);
  while (!calls_.empty()) empty_.Wait(&mu_);
}

StatusOr<int> InprocNetwork::Add(const HostPort& address, std::shared_ptr<InprocEndpoint> endpoint) {
  MutexLock lock(&mu_);
  int port = address.port;
  while (port == 0) {
    if (!endpoints_.contains(JoinHostPort(address.host, next_port_))) port = next_port_;
    next_port_ = next_port_ == 65535 ? 10000 : next_port_ + 1;
  }
  const std::string name = JoinHostPort(address.host, port);
  if (!endpoints_.emplace(name, std::move(endpoint)).second) {
    return AlreadyExists("cannot listen at ", name, ": another listener of this process has it");
  }
  return port;
}

void InprocNetwork::Remove(const std::string& address) {
  std::shared_ptr<InprocEndpoint> removed;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = endpoints_.find(address);
  if (it == endpoints_.end()) return;
  removed = std::move(it->second);
  endpoints_.erase(it);
}

std::shared_ptr<InprocEndpoint> InprocNetwork::Find(const std::string& address) {
  MutexLock lock(&mu_);
  const auto it = endpoints_.find(address);
  return it == endpoints_.end() ? nullptr : it->second;
}

std::shared_ptr<InprocNetwork> NewInprocNetwork() { return std::make_shared<InprocNetwork>(); }

}  // namespace millrace::net
