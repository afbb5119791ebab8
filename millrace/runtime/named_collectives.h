// Collective operations by name, as kernels see them: the ops of ops/collective submit tensors, and whoever connects
// this process with others (strategy/horovod) carries the operations out.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct NamedCollective {
  enum class Kind : uint8_t { kAllreduce, kAllgather, kBroadcast };
  Kind kind = Kind::kAllreduce;
  // The same on all ranks, and of no other operation that this rank has in flight.
  std::string name = {};
  Tensor tensor = {};
  std::string reduction = "sum";  // of an allreduce: "sum", "mean", "min", "max" or "product"
  int root = 0;                   // of a broadcast
};

// Thread-safe. Ranks may submit operations in different orders: each is carried out once all ranks have submitted it.
class NamedCollectives {
 public:
  virtual ~NamedCollectives() = default;

  virtual int rank() const = 0;
  // Calls `done` once, on any thread, perhaps before it returns; `done` must not block.
  using Done = absl::AnyInvocable<void(StatusOr<Tensor>)>;
  virtual void Submit(NamedCollective operation, Done done) = 0;

  // Those that the kernels of this process use, by the name of their group; "" is the process's own.
  static void Install(const std::string& group, std::weak_ptr<NamedCollectives> collectives);
  // FAILED_PRECONDITION if there are none, or no longer.
  static StatusOr<std::shared_ptr<NamedCollectives>> Find(const std::string& group);
};

}  // namespace millrace
