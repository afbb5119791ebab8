// Where tensors meet: a Send puts one under a key, a Recv takes it, in either order.
#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What travels: a value, or the news that it is dead (a branch not taken).
struct RendezvousItem {
  Tensor tensor;
  bool is_dead = false;
  // When another task began to send it, in microseconds since 1970 by that task's clock; 0: not known.
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

  // As Send and Recv outside loops, by a node that has a number in its task's part of the step (kEdgeSlotAttr): a rendezvous that was told of
  // the part finds the tensor by it. `key` says the same in full.
  virtual Status SendSlot(int slot, absl::string_view key, RendezvousItem item) { return Send(key, std::move(item)); }
  virtual void RecvSlot(int slot, absl::string_view key, Done done) { Recv(key, std::move(done)); }
};

// Of a _Send or _Recv: its number in the part, from 0. Set where the part is compiled.
inline constexpr char kEdgeSlotAttr[] = "_edge_slot";

// Within one process.
class LocalRendezvous : public Rendezvous {
 public:
  LocalRendezvous();
  ~LocalRendezvous() override;
  Status Send(absl::string_view key, RendezvousItem item) override;
  void Recv(absl::string_view key, Done done) override;
  void Abort(Status why) override;
  // True while a Recv waits.
  bool HasWaiters() const;
  // True when nothing waits, neither a tensor nor somebody for one.
  bool IsEmpty() const;

 private:
  struct Slot;
  mutable Mutex mu_;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
