// The tensors of a step that are pulled: fetched by key from the task that produces them. Used with TensorFlow's tasks,
// over transports that do not stream, and between two tasks neither of which is home.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/thread_handover.h"
#include "millrace/cluster/step/group_receives.h"
#include "millrace/cluster/step/rendezvous_key.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/worker/peers.h"

namespace millrace {

// The pulled tensors of one step on one task. Thread-safe; callbacks run without locks.
class PulledTensors {
 public:
  using Done = Rendezvous::Done;
  using GroupDone = absl::AnyInvocable<void(StatusOr<std::vector<RendezvousItem>>)>;

  PulledTensors(int64_t step_id, WaitRegistry* waits) : step_id_(step_id), waits_(waits) {}

  // Call Use before the first pull: `stats` records each tensor (may be null; SetStats replaces it), and `handover` is
  // that of the threads that work for the step.
  void Use(StepStatsCollector* stats, RefPtr<ThreadHandover> handover);
  void SetStats(StepStatsCollector* stats);

  // Asks `peer`, one of `peers`, for a tensor (RecvTensor). `keeper` keeps this object alive until the answer.
  void Pull(RefPtr<RefCounted> keeper, std::shared_ptr<const PeerSet> peers, const Peer* peer, absl::string_view key,
            Done done);
  // Asks for all tensors of a group of `groups` with one call (RecvTensors), which only Millrace's tasks serve.
  void PullGroup(RefPtr<RefCounted> keeper, std::shared_ptr<const PeerSet> peers, const Peer* peer,
                 std::shared_ptr<const ReceiveGroups> groups, const ReceiveGroup* group, GroupDone done);
  // Cancels all current and later calls with `why`.
  void Abort(Status why) { calls_.StartCancel(std::move(why)); }

  // What is being waited for: ListAwaited adds the peers, each once among the entries of `peers` from `first` on;
  // ListWaits the tensors.
  void ListAwaited(size_t first, std::vector<Awaited>* peers);
  void ListWaits(std::vector<Wait>* waits);
  bool Awaits(const std::string& task);

 private:
  // A call in flight.
  struct Fetch {
    std::shared_ptr<const PeerSet> peers;  // keeps `peer` alive
    const Peer* peer;
    absl::Time since;
    std::string key = {};
    std::shared_ptr<const ReceiveGroups> groups = nullptr;  // keeps `group` alive
    const ReceiveGroup* group = nullptr;                    // null if only `key` is fetched
    StepStatsCollector* stats = nullptr;
    int64_t start_nanos = 0;
    Fetch* next = nullptr;
    Fetch* previous = nullptr;

    absl::Span<const std::string> keys() const {
      return group == nullptr ? absl::MakeConstSpan(&key, 1) : absl::MakeConstSpan(group->keys);
    }
  };
  // Adds the call to the list and returns its CallControl.
  CallControl Begin(Fetch* fetch);
  void End(Fetch* fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t step_id_;
  WaitRegistry* const waits_;
  CancellationManager calls_;
  Mutex mu_;
  StepStatsCollector* stats_ ABSL_GUARDED_BY(mu_) = nullptr;
  RefPtr<ThreadHandover> handover_ ABSL_GUARDED_BY(mu_);
  Fetch* fetching_ ABSL_GUARDED_BY(mu_) = nullptr;  // the head of the linked list of calls in flight
};

}  // namespace millrace
