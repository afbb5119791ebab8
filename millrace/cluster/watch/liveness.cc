#include "millrace/cluster/watch/liveness.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "millrace/base/stood_still.h"
#include "millrace/cluster/blamed_task.h"

namespace millrace {

bool EndsWait(const Awaited& lost, const Status& why, const Awaited& waiting) {
  return lost.task == waiting.task && lost.address == waiting.address &&
         (!absl::IsAborted(why) || lost.incarnation == waiting.incarnation);
}

std::shared_ptr<LivenessMonitor> LivenessMonitor::Make(const LivenessOptions& options,
                                                       std::weak_ptr<LivenessClient> client) {
  return std::shared_ptr<LivenessMonitor>(new LivenessMonitor(options, std::move(client)));
}

void LivenessMonitor::Poke() {
  if (ticking_.load(std::memory_order_relaxed) || ticking_.exchange(true)) return;
  Schedule();
}

void LivenessMonitor::Schedule() {
  options_.timers->Schedule(options_.interval, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->Tick();
  });
}

void LivenessMonitor::Tick() {
  std::vector<Awaited> awaited;
  const std::shared_ptr<LivenessClient> client = client_.lock();
  if (client == nullptr) return;
  const bool more = client->ListAwaited(&awaited);
  // A deterministic order, whatever that of the client's tables is.
  std::sort(awaited.begin(), awaited.end(), [](const Awaited& a, const Awaited& b) {
    return std::tie(a.task, a.address, a.incarnation) < std::tie(b.task, b.address, b.incarnation);
  });
  for (const Awaited& peer : awaited) {
    {
      MutexLock lock(&mu_);
      if (!asked_.emplace(peer.task, peer.address, peer.incarnation).second) continue;
    }
    peer.worker->GetStatus({.timeout = options_.peer_timeout},
                           [self = shared_from_this(), peer, asked = options_.clock->Now()](
                               const StatusOr<pb::GetStatusResponse>& answer) { self->OnAnswer(peer, asked, answer); });
  }
  if (more || !awaited.empty()) {
    Schedule();
  } else {
    ticking_.store(false);
    // A step that began between the check and the store saw the flag set and did not start a tick.
    if (client->ListAwaited(&awaited) && !ticking_.exchange(true)) Schedule();
  }
}

void LivenessMonitor::OnAnswer(const Awaited& peer, absl::Time asked, const StatusOr<pb::GetStatusResponse>& answer) {
  {
    MutexLock lock(&mu_);
    asked_.erase({peer.task, peer.address, peer.incarnation});
  }
  Status why;
  if (!answer.ok()) {
    if (absl::IsDeadlineExceeded(answer.status())) {
      if (StoodStill(options_.clock->Now(), asked, options_.peer_timeout)) return;  // the next tick asks again
      why = Unavailable("task ", peer.task, " at ", peer.address, " has not answered for ",
                        absl::FormatDuration(options_.peer_timeout), ": it hangs or is cut off");
    } else if (absl::IsUnavailable(answer.status())) {
      why = answer.status();
    } else {
      return;  // it answered something, so it is alive
    }
  } else if (peer.incarnation != 0) {
    bool found = false;
    for (const pb::DeviceAttributes& device : answer->device_attributes()) {
      found |= device.incarnation() == peer.incarnation;
    }
    if (!found) why = Aborted("task ", peer.task, " at ", peer.address, " was restarted while a step waited for it");
  }
  if (why.ok()) return;
  if (const std::shared_ptr<LivenessClient> client = client_.lock())
    client->OnPeerLost(peer, BlameTask(why, peer.task));
}

}  // namespace millrace
