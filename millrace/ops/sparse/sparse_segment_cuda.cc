// SparseSegmentSum, Mean and SqrtN with a given number of segments, and their gradients, on a GPU. Indices and segments
// out of range are left out.
#include "absl/strings/match.h"
#include "millrace/device/device_memory.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/sparse/sparse_segment.h"

namespace millrace {
namespace {

SegmentScale ScaleOf(const std::string& op) {
  if (absl::StartsWith(op, "SparseSegmentMean")) return SegmentScale::kMean;
  return absl::StartsWith(op, "SparseSegmentSqrtN") ? SegmentScale::kSqrtN : SegmentScale::kSum;
}

class CudaSparseSegmentKernel : public Kernel {
 public:
  explicit CudaSparseSegmentKernel(KernelInit& init)
      : scale_(ScaleOf(init.node().type())), is_gradient_(absl::EndsWith(init.node().type(), "Grad")) {
    const int ordinal = CudaDevice::GpuOf(init.device())->ordinal();
    const DType indices = init.input_type(1), ids = init.input_type(2);
    init.Fail(order_.Init(is_gradient_ ? indices : ids, ordinal));
    const std::string text = RowsProgram::Segments(init.input_type(0), is_gradient_ ? ids : indices);
    kernel_ = CompileFor(init, text, is_gradient_ ? RowsProgram::kAddBack : RowsProgram::kSumChosen);
    if (is_gradient_) {
      init.Fail(ids_order_.Init(ids, ordinal));
      count_ = CompileFor(init, text, RowsProgram::kCount);
    }
  }

  // Sums are of rows of x, chosen by `source`, into those that `target` names; gradients go the other way.
  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &indices = ctx.input(1), &ids = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckSegmentShapes(x, indices, ids, is_gradient_ ? "grad" : "data"));
    MR_ASSIGN_OR_RETURN(const int64_t rows, ScalarInput(ctx, 3, is_gradient_ ? "output_dim0" : "num_segments"));
    if (rows < 0) return InvalidArgument("Expected a non-negative size for the first dimension, not ", rows);
    Shape shape = x.shape();
    shape.set_dim(0, rows);
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    const Tensor &target = is_gradient_ ? indices : ids, &source = is_gradient_ ? ids : indices;
    const RowIndex into = RowIndex::Of(rows), from = RowIndex::Of(x.dim(0));
    CudaCall call(ctx);
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, target, into, /*is_coordinates=*/false));
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, source, from, /*is_coordinates=*/false));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    MR_RETURN_IF_ERROR(const_cast<DeviceBuffer*>(DeviceBufferOf(*out))->Clear(out->raw_data(), out->TotalBytes()));
    int64_t n = indices.num_elements(), columns = shape.Product(1, shape.rank()), x_rows = x.dim(0);
    if (n == 0 || x_rows == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Tensor slots, order_.Sort(call, into, n, target));
    Tensor counts;
    const void* counted = nullptr;
    if (is_gradient_) {
      MR_ASSIGN_OR_RETURN(counts, Count(call, from, n, ids));
      counted = counts.raw_data();
    }
    MR_ASSIGN_OR_RETURN(const void* values, call.Memory(x));
    MR_ASSIGN_OR_RETURN(const void* chosen, call.Memory(source));
    const void* order = slots.raw_data();
    void* to = out->raw_data();
    int scale = static_cast<int>(scale_);
    std::vector<void*> arguments = {&n, &columns, &scale, &order, &chosen, &x_rows};
    if (is_gradient_) arguments.push_back(&counted);
    arguments.insert(arguments.end(), {&values, &to});
    return call.LaunchOverRows(ctx.node().type(), kernel_, n, columns, arguments);
  }

 private:
  // How many of the ids name each segment.
  StatusOr<Tensor> Count(const CudaCall& call, const RowIndex& segments, int64_t n, const Tensor& ids) const {
    MR_ASSIGN_OR_RETURN(Tensor counts, Tensor::Make(DType::kInt64, Shape({segments.rows()}), call.gpu()->allocator()));
    MR_ASSIGN_OR_RETURN(const Tensor slots, ids_order_.Sort(call, segments, n, ids));
    const void* order = slots.raw_data();
    void* to = counts.raw_data();
    std::vector<void*> arguments = {&n, &order, &to};
    MR_RETURN_IF_ERROR(call.LaunchOverElements("sizes of segments", count_, n, arguments));
    return counts;
  }

  const SegmentScale scale_;
  const bool is_gradient_;
  GpuRowOrder order_, ids_order_;
  cudaKernel_t kernel_ = nullptr, count_ = nullptr;
};

MILLRACE_KERNEL_OF(SparseSegmentSumWithNumSegments, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);
MILLRACE_KERNEL_OF(SparseSegmentMeanWithNumSegments, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);
MILLRACE_KERNEL_OF(SparseSegmentSqrtNWithNumSegments, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);
MILLRACE_KERNEL_OF(SparseSegmentSumGrad, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);
MILLRACE_KERNEL_OF(SparseSegmentMeanGrad, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);
MILLRACE_KERNEL_OF(SparseSegmentSqrtNGrad, kCuda, ({"T", CudaRealFloats()}), CudaSparseSegmentKernel);

}  // namespace
}  // namespace millrace
