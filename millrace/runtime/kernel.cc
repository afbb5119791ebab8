#include "millrace/runtime/kernel.h"

#include <utility>

#include "millrace/device/memory_holders.h"
#include "millrace/graph/host_memory.h"

namespace millrace {
namespace {

// True if memory that holds elements of `from` can hold as many of `to`.
bool SameStorage(DType from, DType to) {
  if (from == to) return true;
  return IsPlain(from) && IsPlain(to) && SizeOf(from) == SizeOf(to);
}

}  // namespace

StatusOr<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  MR_CHECK(i >= 0 && i < num_outputs_);
  Tensor* out = &outputs_[i];
  MR_RETURN_IF_ERROR(Tensor::MakeInto(node_->output_type(i), shape, allocator_, out));
  return out;
}

StatusOr<Tensor*> KernelContext::AllocateDeviceOutput(int i, const Shape& shape) {
  if (device_->shares_host_memory() || IsInHostMemory({const_cast<Node*>(node_), i})) return AllocateOutput(i, shape);
  Tensor* const out = &outputs_[i];
  const HolderName holder("node", node_->name());
  MR_RETURN_IF_ERROR(Tensor::MakeInto(node_->output_type(i), shape, device_->allocator(), out));
  return out;
}

StatusOr<Tensor*> KernelContext::ForwardOrAllocateOutput(std::initializer_list<int> candidates, int i,
                                                         const Shape& shape) {
  MR_CHECK(i >= 0 && i < num_outputs_);
  if (forwardable_ != 0) {
    const DType dtype = node_->output_type(i);
    for (int c : candidates) {
      if (c >= 64 || (forwardable_ >> c & 1) == 0) continue;
      // The slot belongs to this run, and this node is its last user.
      Tensor& in = const_cast<Tensor&>(*inputs_[c]);
      if (!in.RefCountIsOne() || !SameStorage(in.dtype(), dtype) ||
          (&in.shape() != &shape && in.shape() != shape && in.num_elements() != shape.num_elements())) {
        continue;
      }
      forwardable_ &= ~(uint64_t{1} << c);
      outputs_[i].TakeMemory(in, dtype, shape);
      return &outputs_[i];
    }
  }
  return AllocateOutput(i, shape);
}

StatusOr<Tensor> KernelContext::AllocateTemp(DType dtype, const Shape& shape) {
  return Tensor::Make(dtype, shape, allocator_);
}

}  // namespace millrace
