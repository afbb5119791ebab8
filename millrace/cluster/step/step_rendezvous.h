// The rendezvous of one step on one task. Each way in which a tensor gets from one task to another is a class of its
// own; this class chooses among them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/cluster/step/line_tensors.h"
#include "millrace/cluster/step/pulled_tensors.h"
#include "millrace/runtime/rendezvous.h"

namespace millrace {

// Thread-safe. Created by the first message of its step, which may be another task's request for a tensor.
//
// An outgoing tensor is pushed if there is a line to its receiver (LineTensors), and otherwise waits here until it is
// requested (LocalRendezvous). An incoming tensor arrives over a line, comes from this task itself, or is pulled from
// the task that produces it (PulledTensors), in a group if the master made one.
class StepRendezvous : public Rendezvous, public RefCounted {
 public:
  StepRendezvous(int64_t step_id, WaitRegistry* waits)
      : step_id_(step_id), waits_(waits), lines_(step_id, waits), pulled_(step_id, waits) {}
  ~StepRendezvous() override;

  // Call it before the step runs here. `peers` are the other tasks; `stats` records the tensors that arrive from them
  // and may be null; `groups` are pulled together; `handover` is that of the threads that work for the step. `stats`
  // must outlive the kernels of the step, until Detach.
  void Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats = nullptr,
              std::shared_ptr<const ReceiveGroups> groups = nullptr, RefPtr<ThreadHandover> handover = nullptr);
  // Pulls the groups of tasks to which there is no line. Call it once, when the step can be aborted.
  void FetchGroups();
  // The step has run here: nothing more is recorded.
  void Detach();

  // Lines: see LineTensors.
  void UseEdges(std::shared_ptr<const StepEdges> edges) { lines_.UseEdges(std::move(edges)); }
  void OpenLine(int task, bool answers, bool traced) { lines_.OpenLine(task, answers, traced); }
  void SetLine(int task, StepLine line) { lines_.SetLine(task, std::move(line)); }
  Status Arrive(int task, SteppedTensors tensors);
  void EndLine(int task) { lines_.EndLine(task); }
  StatusOr<SteppedTensors> TakeHeld(int task) { return lines_.TakeHeld(task); }

  Status Send(absl::string_view key, RendezvousItem item) override;
  Status SendSlot(int slot, absl::string_view key, RendezvousItem item) override;
  // Gets the tensor from this task's table or from the task that produces it.
  void Recv(absl::string_view key, Done done) override;
  void RecvSlot(int slot, absl::string_view key, Done done) override;
  // Gets a tensor that another task requests from this task's table.
  void RecvLocal(absl::string_view key, Done done) { local_.Recv(key, std::move(done)); }
  // Fails all waits, local ones and those for peers, with `why`.
  void Abort(Status why) override;

  // For liveness checks: ListAwaited adds the peers whose tensors are being waited for; AbortIfAwaiting ends the step
  // if it waits for a lost one.
  void ListAwaited(std::vector<Awaited>* peers);
  bool AbortIfAwaiting(const Awaited& lost, const Status& why);
  // Adds the current waits for peers, in the form of a WaitRegistry. They are not registered in advance: a step pays
  // nothing until somebody asks.
  void ListWaits(std::vector<Wait>* waits);
  // True if there is neither an unreceived tensor of this task nor a pending receive.
  bool IsEmpty() const { return local_.IsEmpty(); }

 private:
  RefPtr<RefCounted> Self() { return ShareRef<RefCounted>(this); }

  const int64_t step_id_;
  WaitRegistry* const waits_;
  LocalRendezvous local_;
  LineTensors lines_;
  PulledTensors pulled_;
  Mutex mu_;
  std::shared_ptr<const PeerSet> peers_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const ReceiveGroups> groups_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
