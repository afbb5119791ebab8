#include "millrace/cluster/master/ended_steps.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace millrace {

void EndedSteps::Tell(const Peer& peer, int64_t step_id) {
  {
    MutexLock lock(&mu_);
    std::deque<int64_t>& steps = steps_[peer.address];
    steps.push_back(step_id);
    if (steps.size() > kMost) steps.pop_front();
  }
  peer.worker->CleanupGraph({.timeout = absl::Seconds(10)}, step_id,
                            [self = shared_from_this(), address = peer.address, step_id](Status status) {
                              if (status.ok()) self->Acknowledged(address, {step_id});
                            });
}

std::vector<int64_t> EndedSteps::Of(const std::string& address) const {
  MutexLock lock(&mu_);
  const auto of_peer = steps_.find(address);
  if (of_peer == steps_.end()) return {};
  return {of_peer->second.begin(), of_peer->second.end()};
}

void EndedSteps::Acknowledged(const std::string& address, const std::vector<int64_t>& steps) {
  MutexLock lock(&mu_);
  const auto of_peer = steps_.find(address);
  if (of_peer == steps_.end()) return;
  std::erase_if(of_peer->second, [&](int64_t step) { return absl::c_linear_search(steps, step); });
  if (of_peer->second.empty()) steps_.erase(of_peer);
}

}  // namespace millrace
