// What the kernels of TensorFlow's collective ops share.
#pragma once

#include <string>

#include "millrace/runtime/collective_executor.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// The time limit of an op; 0 or less means none.
absl::Duration CollectiveTimeout(float seconds);

// A kernel whose group and instance are attrs (the ops without a version), inputs (V2), or come from a communicator
// (V3). A subclass allocates the output and completes the call.
class CollectiveKernel : public AsyncKernel {
 public:
  // How an op names its group and instance.
  enum class Naming { kAttrs, kInputs, kCommunicator };

  // With Naming::kInputs, `first_key` is the input with the size of the group; its key and the instance's follow.
  // With Naming::kCommunicator, `first_key` is the communicator; group assignments follow.
  CollectiveKernel(KernelInit& init, CollectiveKind kind, Naming naming, int first_key);

  void ComputeAsync(KernelContext& ctx, Done done) final;

 protected:
  // Sets the input, the output and what is particular to the op. `call` has the group already.
  virtual Status Prepare(KernelContext& ctx, CollectiveCall* call) = 0;
  // Reads the attrs of a reduction: what merges values (`merge_attr`), and what happens in the end, if that is one.
  void ReadReduction(KernelInit& init, const char* merge_attr, bool has_final_op);

  CollectiveCall common_;  // what is the same in all calls

 private:
  Status ReadGroup(const KernelContext& ctx, CollectiveCall* call) const;
  Status ReadCommunicator(const KernelContext& ctx, CollectiveCall* call) const;

  const Naming naming_;
  const int first_key_;
  CollectiveMemory memory_;
};

// Input `i` as an int32; INVALID_ARGUMENT, naming the input, unless it is a scalar.
StatusOr<int32_t> Int32ScalarInput(const KernelContext& ctx, int i, const char* name);

// The group of a communicator, as one device sees it. It numbers the instances of the ops that use it.
class CollectiveCommunicator : public Resource {
 public:
  CollectiveCommunicator(CollectiveGroupRef group, absl::Duration timeout) : group_(group), timeout_(timeout) {}
  std::string DebugString() const override {
    return absl::StrCat("communicator of group ", group_.key, " with rank ", group_.rank, " of ", group_.size);
  }
  const CollectiveGroupRef& group() const { return group_; }
  absl::Duration timeout() const { return timeout_; }
  // The instances of a group take 21 bits.
  int32_t NextInstance() { return next_instance_.fetch_add(1, std::memory_order_relaxed) & ((1 << 21) - 1); }

 private:
  const CollectiveGroupRef group_;
  const absl::Duration timeout_;
  std::atomic<int32_t> next_instance_{0};
};

}  // namespace millrace
