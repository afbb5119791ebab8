// Where the tensors of one step meet on one task: those made here wait for whoever wants them, those made elsewhere are fetched; or, where a line
// joins the two tasks, each is sent as soon as it is there and awaited without being asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/cluster/group_receives.h"
#include "millrace/cluster/liveness.h"
#include "millrace/cluster/peers.h"
#include "millrace/cluster/step_edges.h"
#include "millrace/cluster/step_wire.h"
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

// One end of the call that streams a step between its master's task and a peer.
struct StepLine {
  RefPtr<net::OutgoingCall> outgoing = nullptr;            // at home
  std::shared_ptr<net::IncomingCall> incoming = nullptr;   // at the peer
  void Send(net::Bytes message) const;
};

// Thread-safe. Made by the first message of its step, which may be another task's wish for a tensor.
class StepRendezvous : public Rendezvous, public RefCounted {
 public:
  StepRendezvous(int64_t step_id, WaitRegistry* waits) : step_id_(step_id), waits_(waits) {}
  ~StepRendezvous() override;

  // Before the step runs here: how to reach the others, where each tensor that came from them is noted (null: nowhere), and what is fetched together, if
  // anything. `stats` outlives the kernels of the step, and Detach.
  void Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats = nullptr, std::shared_ptr<const ReceiveGroups> groups = nullptr);
  // Fetches the groups of tasks that no line leads to. Once, when the step can be aborted.
  void FetchGroups();
  // The step has run here: nothing more is noted.
  void Detach();

  // Lines (step_rendezvous_lines.cc). First the numbered edges of the part that runs here, once; then, before the part runs, each line to one of
  // edges->tasks: from then on tensors go there and come from there over it. At the end that answers the call, what rides and what the client
  // fetches waits for TakeHeld. `traced`: tensors carry the time.
  void UseEdges(std::shared_ptr<const StepEdges> edges);
  void OpenLine(int task, bool answers, bool traced);
  // Before anything is sent.
  void SetLine(int task, StepLine line);
  // Tensors that came over the line. INVALID_ARGUMENT for what is none of ours or came before; those in front of it count.
  Status Arrive(int task, SteppedTensors tensors);
  // The other end has said its last word: whoever waits for a tensor of it is told, INTERNAL, that it does not come.
  void EndLine(int task);
  // What goes with the answer; nothing goes over the line any more.
  StatusOr<SteppedTensors> TakeHeld(int task);

  Status Send(absl::string_view key, RendezvousItem item) override;
  Status SendSlot(int slot, absl::string_view key, RendezvousItem item) override;
  // From this task's table, or from the task that makes it.
  void Recv(absl::string_view key, Done done) override;
  void RecvSlot(int slot, absl::string_view key, Done done) override;
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
  // A tensor that comes or goes over a line: the first of the two that is there, it or who wants it.
  struct Slot {
    enum class State { kEmpty, kHere, kAwaited, kDone };
    State state = State::kEmpty;
    RendezvousItem item = {};
    Done waiter = nullptr;
    absl::Time since = absl::InfinitePast();  // of the wait, or in a traced step of the arrival
  };
  struct Line {
    bool open = false;
    bool over = false;  // nothing comes any more
    bool answers = false;
    bool traced = false;
    int awaited = 0;  // tensors that somebody waits for
    StepLine to = {};
    std::vector<int> held = {};  // slots
  };
  // -1 when no line leads there.
  int FindLine(absl::string_view task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes `done` unless the result is there: a tensor, or an error.
  bool RecvFrom(Line* line, Slot* slot, absl::string_view key, Done* done, StatusOr<RendezvousItem>* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `arrived` is for statistics; InfinitePast: nobody asks.
  Status ArriveOne(int task, SteppedTensor tensor, absl::Time arrived);
  void AbortLines(const Status& why);
  // InfinitePast: now.
  void NoteArrival(absl::string_view key, const RendezvousItem& item, absl::Time arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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
  std::shared_ptr<const StepEdges> edges_ ABSL_GUARDED_BY(mu_);
  std::vector<Line> lines_ ABSL_GUARDED_BY(mu_);  // by edges_->tasks; empty while none was opened
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<int> missing_ ABSL_GUARDED_BY(mu_);                // of each group that leaves together
  absl::flat_hash_map<std::string, Slot> in_loops_ ABSL_GUARDED_BY(mu_);  // what comes over lines, by key
  Status aborted_ ABSL_GUARDED_BY(mu_);
};

// "layer1/read" of "edge_12_layer1/read".
absl::string_view TensorName(absl::string_view tensor);
// Notes a tensor that came from elsewhere; from its arrival to its arrival when it was not asked for.
void NoteTransfer(StepStatsCollector* stats, absl::string_view key, const RendezvousItem& item, int64_t start_nanos, int64_t end_nanos);

}  // namespace millrace
