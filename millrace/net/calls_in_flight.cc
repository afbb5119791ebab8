#include "millrace/net/calls_in_flight.h"

#include <vector>

namespace millrace::net {

bool CallsInFlight::Add(OutgoingCall* call) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  calls_.insert(call);
  return true;
}

void CallsInFlight::Remove(OutgoingCall* call) {
  MutexLock lock(&mu_);
  calls_.erase(call);
  if (calls_.empty()) empty_.SignalAll();
}

void CallsInFlight::CancelAllAndWait() {
  std::vector<RefPtr<OutgoingCall>> calls;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    for (OutgoingCall* call : calls_) calls.push_back(ShareRef(call));
  }
  for (const auto& call : calls) call->Cancel();
  calls.clear();
  MutexLock lock(&mu_);
  while (!calls_.empty()) empty_.Wait(&mu_);
}

}  // namespace millrace::net
