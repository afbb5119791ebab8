// Kernels of collective operations on several tensors at once.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/collective_executor.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// Copies tensors into one piece of memory, lets the subclass start an operation on it, and copies the result to the
// outputs. A step that is cancelled meanwhile ends the group with the reason, because the other tasks wait for this
// one.
class PackedCollectiveKernel : public AsyncKernel {
 public:
  explicit PackedCollectiveKernel(KernelInit& init);
  void ComputeAsync(KernelContext& ctx, Done done) final;

 protected:
  // `memory` has the inputs one after another from `values` on, and at `values - count` room for the result; see Start.
  struct Packed {
    char* result = nullptr;
    std::vector<const char*> parts = {};  // each of `count` elements
    int64_t count = 0;
    DType dtype = DType::kInvalid;
    RefPtr<const RefCounted> owner = nullptr;
  };
  // Starts the operation. `done` is called once.
  virtual void Start(CollectiveExecutor& executor, const Packed& packed, CollectiveExecutor::Done done) = 0;
  // The number of parts that the inputs are divided into: each has a tensor for each output.
  virtual int num_parts() const = 0;
  // Whether the first part lies where the result will be.
  virtual bool in_place() const = 0;

  const std::string& key() const { return key_; }

 private:
  struct Pending;
  StatusOr<Tensor> Memory(int64_t bytes);
  Status Unpack(KernelContext& ctx, const char* result) const;

  std::string key_;
  Mutex mu_;
  // Memory of steps that have ended is used again: fresh pages are slow.
  std::vector<Tensor> memory_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
