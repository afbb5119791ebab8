#include "millrace/ops/kernels/cuda/cuda_call.h"

#include <algorithm>
#include <vector>

#include "millrace/ops/kernels/broadcast.h"

namespace millrace {

StatusOr<void*> CudaCall::Memory(const Tensor& tensor) const {
  const GpuBuffer* const buffer = GpuBufferOf(tensor);
  if (buffer == nullptr || buffer->ordinal() != gpu_->ordinal()) {
    return Internal("a tensor of ", tensor.dtype(), tensor.shape().ToString(), " is not in the memory of ",
                    gpu_->name());
  }
  MR_RETURN_IF_ERROR(gpu_->Use());
  MR_RETURN_IF_ERROR(buffer->AwaitOnCompute());
  return tensor.raw_data();
}

StatusOr<Tensor*> CudaCall::Output(int i, const Shape& shape) const {
  Tensor* const out = ctx_.mutable_output(i);
  MR_RETURN_IF_ERROR(Tensor::MakeInto(ctx_.output_type(i), shape, gpu_->allocator(), out));
  return out;
}

std::optional<cuda::ElementType> CudaElementType(DType dtype) {
  using cuda::ElementType;
  switch (dtype) {
    case DType::kFloat:
      return ElementType::kFloat;
    case DType::kDouble:
      return ElementType::kDouble;
    case DType::kHalf:
      return ElementType::kHalf;
    case DType::kBFloat16:
      return ElementType::kBfloat16;
    // Signed and unsigned integers wrap alike.
    case DType::kInt8:
    case DType::kUInt8:
      return ElementType::kInt8;
    case DType::kInt16:
    case DType::kUInt16:
      return ElementType::kInt16;
    case DType::kInt32:
    case DType::kUInt32:
      return ElementType::kInt32;
    case DType::kInt64:
    case DType::kUInt64:
      return ElementType::kInt64;
    case DType::kComplex64:
      return ElementType::kComplex64;
    case DType::kComplex128:
      return ElementType::kComplex128;
    default:
      return std::nullopt;
  }
}

cuda::BinaryPlan PlanSameShape(int64_t num_elements) {
  cuda::BinaryPlan plan;
  plan.rank = 1;
  plan.size[0] = plan.num_elements = num_elements;
  plan.a_step[0] = plan.b_step[0] = 1;
  return plan;
}

StatusOr<cuda::BinaryPlan> PlanBinary(const Shape& a, const Shape& b, Shape* result) {
  Broadcast broadcast;
  MR_RETURN_IF_ERROR(broadcast.Init({&a, &b}));
  *result = broadcast.shape();
  const int rank = result->rank();
  // Dimensions, innermost first; those with the same strides in both operands are merged.
  std::vector<int64_t> size, a_step, b_step;
  int64_t a_next = 1, b_next = 1;
  for (int d = 0; d < rank; ++d) {
    const int64_t n = result->dim(rank - 1 - d);
    const int64_t in_a = d < a.rank() ? a.dim(a.rank() - 1 - d) : 1;
    const int64_t in_b = d < b.rank() ? b.dim(b.rank() - 1 - d) : 1;
    if (n == 1) continue;
    const int64_t a_here = in_a == 1 ? 0 : a_next, b_here = in_b == 1 ? 0 : b_next;
    a_next *= in_a;
    b_next *= in_b;
    if (!size.empty() && (a_here == 0) == (a_step.back() == 0) && (b_here == 0) == (b_step.back() == 0)) {
      size.back() *= n;
      continue;
    }
    size.push_back(n);
    a_step.push_back(a_here);
    b_step.push_back(b_here);
  }
  cuda::BinaryPlan plan;
  if (size.size() > cuda::BinaryPlan::kMaxRank) {
    return Unimplemented("broadcasting ", a.ToString(), " and ", b.ToString(), " takes more than ",
                         cuda::BinaryPlan::kMaxRank, " dimensions on a GPU");
  }
  plan.rank = static_cast<int>(size.size());
  plan.num_elements = result->num_elements();
  std::copy(size.rbegin(), size.rend(), plan.size);
  std::copy(a_step.rbegin(), a_step.rend(), plan.a_step);
  std::copy(b_step.rbegin(), b_step.rend(), plan.b_step);
  return plan;
}

}  // namespace millrace
