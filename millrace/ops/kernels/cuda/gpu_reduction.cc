#include "millrace/ops/kernels/cuda/gpu_reduction.h"

#include <algorithm>
#include <vector>

#include "millrace/ops/kernels/cuda/compiled_kernels.h"

namespace millrace {

Status GpuReduction::Init(const ReductionProgram& program, DType dtype, int ordinal) {
  acc_size_ = std::max<size_t>(SizeOf(dtype), dtype == DType::kHalf || dtype == DType::kBFloat16 ? sizeof(float) : 1);
  const std::string text = program.Text(dtype);
  MR_ASSIGN_OR_RETURN(whole_, CompiledKernel(text, ReductionProgram::kWhole, ordinal));
  MR_ASSIGN_OR_RETURN(pieces_, CompiledKernel(text, ReductionProgram::kPieces, ordinal));
  MR_ASSIGN_OR_RETURN(join_, CompiledKernel(text, ReductionProgram::kJoin, ordinal));
  return absl::OkStatus();
}

Status GpuReduction::Run(const CudaCall& call, absl::Span<const ReduceAxes::Run> runs, const Tensor& in,
                         Tensor* out) const {
  if (out->num_elements() == 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(ReductionPlan plan, ReductionPlan::Of(runs));
  MR_ASSIGN_OR_RETURN(const void* from, call.Memory(in));
  void* to = out->raw_data();
  const auto launch = [&](cudaKernel_t kernel, const ReductionPlan::Launch& part, std::vector<void*> arguments) {
    return call.Launch("a reduction", kernel, dim3(part.blocks[0], part.blocks[1]),
                       dim3(part.threads[0], part.threads[1]), arguments);
  };
  if (plan.pieces() == 1) return launch(whole_, plan.first, {&plan.first.reduction, &from, &to});
  const int64_t bytes = out->num_elements() * plan.pieces() * static_cast<int64_t>(acc_size_);
  MR_ASSIGN_OR_RETURN(const Tensor partial, Tensor::Make(DType::kUInt8, Shape({bytes}), call.gpu()->allocator()));
  void* accumulators = partial.raw_data();
  MR_RETURN_IF_ERROR(launch(pieces_, plan.first, {&plan.first.reduction, &from, &accumulators}));
  return launch(join_, plan.join, {&plan.join.reduction, &plan.first.reduction.count, &accumulators, &to});
}

}  // namespace millrace
