// Rendezvous: a Send puts a tensor under a key and a Recv takes it, in either order.
#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// A transferred item: a value, or a dead tensor (of a branch that was not taken).
struct RendezvousItem {
  Tensor tensor;
  bool is_dead = false;
  // When the sending task began to send it, in microseconds since 1970 on that task's clock; 0 if unknown.
  int64_t sent_micros = 0;
};

// Thread-safe. Each key is used once per step. After Abort, every pending and later Recv gets the
// given status; nothing waits on an aborted step.
class Rendezvous {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<RendezvousItem>)>;

  virtual ~Rendezvous() = default;
  virtual Status Send(absl::string_view key, RendezvousItem item) = 0;
  // Calls `done` exactly once, on the sender's thread if the tensor is not there yet.
  virtual void Recv(absl::string_view key, Done done) = 0;
  virtual void Abort(Status why) = 0;

  // Variants of Send and Recv for nodes outside loops that have a slot number in their task's part of the step
  // (kEdgeSlotAttr). A rendezvous that knows the part finds the tensor by `slot` instead of by `key`; both identify the
  // same tensor.
  virtual Status SendSlot(int slot, absl::string_view key, RendezvousItem item) { return Send(key, std::move(item)); }
  virtual void RecvSlot(int slot, absl::string_view key, Done done) { Recv(key, std::move(done)); }
};

// An attr of _Send and _Recv: the node's slot number in the part, from 0. Set when the part is compiled.
inline constexpr char kEdgeSlotAttr[] = "_edge_slot";

// A rendezvous within one process.
class LocalRendezvous : public Rendezvous {
 public:
  LocalRendezvous();
  ~LocalRendezvous() override;
  Status Send(absl::string_view key, RendezvousItem item) override;
  void Recv(absl::string_view key, Done done) override;
  void Abort(Status why) override;
  // True if there is neither an unreceived tensor nor a pending Recv.
  bool IsEmpty() const;

 private:
  struct Slot;
  mutable Mutex mu_;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
