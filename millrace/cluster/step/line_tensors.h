// The tensors of a step that are pushed over lines: sent as soon as they exist, without a request by the receiver.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/cluster/codec/step_wire.h"
#include "millrace/cluster/step/rendezvous_key.h"
#include "millrace/cluster/step/step_edges.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/worker/peers.h"
#include "millrace/net/transport.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// One end of a line: the streaming call between home and a peer that runs a step.
struct StepLine {
  RefPtr<net::OutgoingStream> outgoing = nullptr;           // at home, which makes the call
  std::shared_ptr<net::IncomingStream> incoming = nullptr;  // at the peer; keeps its call alive
  void Send(net::Bytes message) const;
};

// The pushed tensors of one step on one task. Thread-safe; callbacks run without locks.
class LineTensors {
 public:
  using Done = Rendezvous::Done;

  LineTensors(int64_t step_id, WaitRegistry* waits) : step_id_(step_id), waits_(waits) {}

  // Set-up, before the part runs: UseEdges once, with the numbered edges of the part that runs here, then OpenLine for
  // each of edges->tasks that has a line. From then on the tensors to and from that task use the line. If `answers`,
  // this end answers the call, and keeps tensors that are piggybacked on the answer, and the client's fetches, for
  // TakeHeld. If `traced`, tensors carry the time at which they were sent.
  void UseEdges(std::shared_ptr<const StepEdges> edges);
  void OpenLine(int task, bool answers, bool traced);
  // Call it before anything is sent.
  void SetLine(int task, StepLine line);
  // Where arrivals are recorded from now on; null means nowhere.
  void SetStats(StepStatsCollector* stats);

  // Sends a tensor over its line. Returns false, and does nothing, if there is no line to the receiver.
  StatusOr<bool> Send(absl::string_view key, RendezvousItem* item);
  StatusOr<bool> SendSlot(int slot, absl::string_view key, RendezvousItem* item);
  // Waits for a tensor of a line: takes `done`, and calls it immediately if the tensor or an error is there already.
  // Returns false, and does nothing, if there is no line to the sender.
  bool Recv(absl::string_view key, absl::string_view from, Done* done);
  bool RecvSlot(int slot, absl::string_view key, Done* done);
  bool LeadsTo(absl::string_view task);

  // Delivers tensors that arrived over the line. INVALID_ARGUMENT for an unknown or duplicate tensor,
  // RESOURCE_EXHAUSTED if a loop's sender is too far ahead of its receivers; the ones before it are delivered. The
  // caller must keep this object alive: a tensor may complete the step and thereby end it.
  Status Arrive(int task, SteppedTensors tensors);
  // The other end has ended the line: waits for its tensors fail with INTERNAL.
  void EndLine(int task);
  // Returns the tensors to send with the answer. Nothing is sent over the line afterwards.
  StatusOr<SteppedTensors> TakeHeld(int task);
  // Fails all current and later waits with `why`. Only the first call has an effect.
  void Abort(const Status& why);

  // What is being waited for: ListAwaited adds the peers, each once among the entries of `peers` from `first` on;
  // ListWaits the tensors.
  void ListAwaited(const PeerSet& known, size_t first, std::vector<Awaited>* peers);
  void ListWaits(std::vector<Wait>* waits);
  bool Awaits(const std::string& task);
  bool HasWaiters();

 private:
  // A tensor that is sent or received over a line. Holds the tensor if it comes first, or the waiter if that comes
  // first.
  struct Slot {
    enum class State { kEmpty, kHere, kAwaited, kDone };
    State state = State::kEmpty;
    bool early = false;  // counted in Line::early
    RendezvousItem item = {};
    Done waiter = nullptr;
    absl::Time since = absl::InfinitePast();  // the start of the wait or, in a traced step, the arrival
  };
  struct Line {
    bool open = false;
    bool over = false;  // nothing more arrives
    bool answers = false;
    bool traced = false;
    int awaited = 0;          // the number of tensors being waited for
    int64_t early = 0;        // tensors of loops that have arrived and nobody has taken,
    int64_t early_bytes = 0;  // and their size
    StepLine to = {};
    std::vector<int> held = {};  // the slots of the tensors kept for TakeHeld
  };
  // -1 if there is no line to the task.
  int FindLine(absl::string_view task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true and sets `result` if the tensor or an error is there; otherwise takes `done`.
  bool RecvFrom(Line* line, Slot* slot, absl::string_view key, Done* done, StatusOr<RendezvousItem>* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `arrived` is for statistics; InfinitePast if there are none.
  Status ArriveOne(int task, SteppedTensor tensor, absl::Time arrived);
  // InfinitePast means now.
  void NoteArrival(absl::string_view key, const RendezvousItem& item, absl::Time arrived)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t step_id_;
  WaitRegistry* const waits_;
  Mutex mu_;
  StepStatsCollector* stats_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::shared_ptr<const StepEdges> edges_ ABSL_GUARDED_BY(mu_);
  std::vector<Line> lines_ ABSL_GUARDED_BY(mu_);  // indexed like edges_->tasks; empty until one is opened
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::vector<int> missing_ ABSL_GUARDED_BY(mu_);  // by group: the number of tensors still missing
  absl::flat_hash_map<std::string, Slot> in_loops_ ABSL_GUARDED_BY(mu_);  // tensors of loops, by key
  Status aborted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
