// Nobody waits for a peer that is gone: whoever a step waits for is asked once a second whether it is there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/worker_interface.h"

namespace millrace {

// A peer that something is waiting for.
struct Awaited {
  std::string task;
  std::string address;
  std::shared_ptr<WorkerInterface> worker;
  uint64_t incarnation = 0;  // of its first device when the wait began; 0: not known
};

struct LivenessOptions {
  TimerQueue* timers = TimerQueue::Real();
  // How often peers are asked, and how long one may stay silent.
  absl::Duration interval = absl::Seconds(1);
  absl::Duration silence = absl::Seconds(5);
};

// Who has steps that wait. Thread-safe.
class LivenessClient {
 public:
  virtual ~LivenessClient() = default;
  // Adds the peers that are waited for now; false when there is nothing that could wait soon either.
  virtual bool ListAwaited(std::vector<Awaited>* peers) = 0;
  // Every wait for that task ends with `why`: UNAVAILABLE (unreachable or silent) or ABORTED (restarted). Names the task.
  virtual void OnPeerLost(const Awaited& peer, const Status& why) = 0;
};

// Ends with its client. Costs a step nothing but Poke's look at a flag: peers are asked only when a wait is there at the turn of the second. Thread-safe.
class LivenessMonitor : public std::enable_shared_from_this<LivenessMonitor> {
 public:
  static std::shared_ptr<LivenessMonitor> Make(const LivenessOptions& options, std::weak_ptr<LivenessClient> client);

  // Something may wait from now on.
  void Poke();

 private:
  LivenessMonitor(const LivenessOptions& options, std::weak_ptr<LivenessClient> client)
      : options_(options), client_(std::move(client)) {}
  void Schedule();
  void Tick();
  void OnAnswer(const Awaited& peer, const StatusOr<pb::GetStatusResponse>& answer);

  const LivenessOptions options_;
  const std::weak_ptr<LivenessClient> client_;
  std::atomic<bool> ticking_{false};
  Mutex mu_;
  absl::flat_hash_map<std::string, int> asked_ ABSL_GUARDED_BY(mu_);  // tasks that have not answered yet
};

}  // namespace millrace
