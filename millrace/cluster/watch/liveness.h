// Detects lost peers: every peer that a step waits for is pinged once a second.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/worker/worker_interface.h"

namespace millrace {

// A peer that something is waiting for.
struct Awaited {
  std::string task;
  std::string address;
  std::shared_ptr<WorkerInterface> worker;
  uint64_t incarnation = 0;  // of its first device when the wait began; 0: unknown
};

// Whether the loss of `lost`, for the reason `why`, ends the wait for `waiting`. Tasks of two clusters may have the
// same name, so the address decides as well; and of a task that was restarted (ABORTED), the process.
bool EndsWait(const Awaited& lost, const Status& why, const Awaited& waiting);

struct LivenessOptions {
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
  // How often peers are pinged, and how long a peer may be silent.
  absl::Duration interval = absl::Seconds(1);
  absl::Duration peer_timeout = absl::Seconds(5);
};

// Implemented by the owner of steps that wait. Thread-safe.
class LivenessClient {
 public:
  virtual ~LivenessClient() = default;
  // Adds the peers that steps wait for now. Returns false if nothing could start to wait soon either.
  virtual bool ListAwaited(std::vector<Awaited>* peers) = 0;
  // Must end every wait that this ends (EndsWait) with `why`, which is UNAVAILABLE (unreachable or silent) or ABORTED
  // (restarted) and names the task.
  virtual void OnPeerLost(const Awaited& peer, const Status& why) = 0;
};

// Ends with its client. A step costs only Poke's check of a flag: peers are pinged only if there is a wait when the
// interval ends. Thread-safe.
class LivenessMonitor : public std::enable_shared_from_this<LivenessMonitor> {
 public:
  static std::shared_ptr<LivenessMonitor> Make(const LivenessOptions& options, std::weak_ptr<LivenessClient> client);

  // Call it when something may start to wait.
  void Poke();

 private:
  LivenessMonitor(const LivenessOptions& options, std::weak_ptr<LivenessClient> client)
      : options_(options), client_(std::move(client)) {}
  void Schedule();
  void Tick();
  void OnAnswer(const Awaited& peer, absl::Time asked, const StatusOr<pb::GetStatusResponse>& answer);

  const LivenessOptions options_;
  const std::weak_ptr<LivenessClient> client_;
  std::atomic<bool> ticking_{false};
  Mutex mu_;
  // Those that have not answered yet: task, address and incarnation.
  using Asked = std::tuple<std::string, std::string, uint64_t>;
  absl::flat_hash_set<Asked> asked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
