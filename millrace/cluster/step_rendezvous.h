// Where the tensors of one step meet on one task: those made here wait for whoever wants them, those made elsewhere are fetched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/cluster/group_receives.h"
#include "millrace/cluster/liveness.h"
#include "millrace/cluster/peers.h"
#include "millrace/executor/step_stats.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// A key's parts, as views into it.
struct ParsedKey {
  absl::string_view send_device, recv_device, tensor;
  absl::string_view send_task, recv_task;  // the devices up to "/device:"
  uint64_t incarnation = 0;
  // INVALID_ARGUMENT quotes what is no key.
  static StatusOr<ParsedKey> Parse(absl::string_view key);
};

// Thread-safe. Made by the first message of its step, which may be another task's wish for a tensor.
class StepRendezvous : public Rendezvous, public RefCounted {
 public:
  StepRendezvous(int64_t step_id, WaitRegistry* waits) : step_id_(step_id), waits_(waits) {}

  // Before the step runs here: how to reach the others, where each tensor that came from them is noted (null: nowhere), and what is fetched together, if
  // anything. `stats` outlives the kernels of the step, and Detach.
  void Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats = nullptr, std::shared_ptr<const ReceiveGroups> groups = nullptr);
  // Fetches the groups. Once, when the step can be aborted.
  void FetchGroups();
  // The step has run here: nothing more is noted.
  void Detach();

  Status Send(absl::string_view key, RendezvousItem item) override;
  // From this task's table, or from the task that makes it.
  void Recv(absl::string_view key, Done done) override;
  // From this task's table: what another task asks for.
  void RecvLocal(absl::string_view key, Done done) { local_.Recv(key, std::move(done)); }
  // Everything that waits, here or at peers, ends with `why`.
  void Abort(Status why) override;

  // The peers whose tensors are on the way, for the liveness of each; and the end of a lost one.
  void ListAwaited(std::vector<Awaited>* peers);
  bool AbortIfAwaiting(const std::string& task, const Status& why);
  // Adds what is waited for from peers now, as a WaitRegistry lists its waits; nothing is noted anywhere until somebody asks.
  void ListWaits(std::vector<Wait>* waits);
  // True while somebody waits for a tensor of this step, here or from elsewhere.
  bool HasWaiters();
  // True when no tensor of this task's waits to be taken, and nobody for one.
  bool IsEmpty() const { return local_.IsEmpty(); }

 private:
  // A tensor on its way from a peer, or several that come together.
  struct Fetch {
    std::shared_ptr<const PeerSet> peers;  // keeps `peer`
    const Peer* peer;
    std::string key = {};
    std::shared_ptr<const ReceiveGroups> groups = nullptr;  // keeps `group`
    const ReceiveGroup* group = nullptr;          // null: there is only `key`
    absl::Time since;
    Done done = nullptr;
    Fetch* next = nullptr;
    Fetch* previous = nullptr;

    absl::Span<const std::string> keys() const { return group == nullptr ? absl::MakeConstSpan(&key, 1) : absl::MakeConstSpan(group->keys); }
  };
  void RecvRemote(std::shared_ptr<const PeerSet> peers, const Peer* peer, absl::string_view key, Done done);
  void OnFetched(std::unique_ptr<Fetch> fetch, StatusOr<RendezvousItem> item, StepStatsCollector* stats, int64_t start_nanos);
  void OnGroupFetched(std::unique_ptr<Fetch> fetch, StatusOr<std::vector<RendezvousItem>> items, int64_t start_nanos);
  void Enlist(Fetch* fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Strike(Fetch* fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t step_id_;
  WaitRegistry* const waits_;
  LocalRendezvous local_;
  CancellationManager fetches_;  // of the calls to peers
  Mutex mu_;
  std::shared_ptr<const PeerSet> peers_ ABSL_GUARDED_BY(mu_);
  StepStatsCollector* stats_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::shared_ptr<const ReceiveGroups> groups_ ABSL_GUARDED_BY(mu_);
  Fetch* fetching_ ABSL_GUARDED_BY(mu_) = nullptr;  // a list through them
};

}  // namespace millrace
