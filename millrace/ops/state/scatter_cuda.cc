// Updates of slices of variables on a GPU, by row and by coordinates. An index out of range is left out.
#include "absl/strings/match.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/state/scatter_kernel.h"

namespace millrace {
namespace {

const char* CombineOf(ScatterOp op) {
  switch (op) {
    case ScatterOp::kUpdate:
      return "x";
    case ScatterOp::kAdd:
      return "AddFn()(a, x)";
    case ScatterOp::kSub:
      return "SubFn()(a, x)";
    case ScatterOp::kMul:
      return "MulFn()(a, x)";
    case ScatterOp::kDiv:
      return "DivideFn()(a, x)";
    case ScatterOp::kMin:
      return "LesserOfFn()(a, x)";
    case ScatterOp::kMax:
      return "GreaterOfFn()(a, x)";
  }
  return nullptr;
}

template <ScatterOp op, ScatterBy by>
class CudaScatterKernel : public ScatterKernel {
 public:
  explicit CudaScatterKernel(KernelInit& init) : ScatterKernel(init, op, by) {
    init.Fail(update_.Init(CombineOf(op), /*rounds=*/true, dtype(), init.input_type(1),
                           CudaDevice::GpuOf(init.device())->ordinal()));
  }

 protected:
  Status Update(KernelContext& ctx, absl::Span<RowLocks* const>, Tensor* value) const override {
    const Tensor& indices = ctx.input(1);
    constexpr bool kCoordinates = by == ScatterBy::kCoordinates;
    MR_ASSIGN_OR_RETURN(const SliceForm slices,
                        kCoordinates ? NdSlices(value->shape(), indices) : RowSlices(value->shape(), indices));
    MR_RETURN_IF_ERROR(CheckUpdates(ctx, value->shape(), slices.shape));
    MR_ASSIGN_OR_RETURN(const RowIndex form, RowIndex::Of(slices.coordinates));
    CudaCall call(ctx);
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, indices, form, kCoordinates));
    return update_.Run(call, form, slices.count, slices.size, indices, ctx.input(2), value);
  }

 private:
  GpuRowUpdate update_;
};

std::vector<DType> Numbers() { return With(CudaNumbers(), {DType::kInt32}); }
std::vector<DType> Reals() { return With(CudaReals(), {DType::kInt32}); }

#define MR_ROWS(name, op, types)                                                                               \
  MILLRACE_KERNEL_OF(Scatter##name, kCuda, ({"T", types}), CudaScatterKernel<ScatterOp::op, ScatterBy::kRow>); \
  MILLRACE_KERNEL_OF(ResourceScatter##name, kCuda, ({"dtype", types}),                                         \
                     CudaScatterKernel<ScatterOp::op, ScatterBy::kRow>)
#define MR_SLICES(name, op, types)                                               \
  MILLRACE_KERNEL_OF(ScatterNd##name, kCuda, ({"T", types}),                     \
                     CudaScatterKernel<ScatterOp::op, ScatterBy::kCoordinates>); \
  MILLRACE_KERNEL_OF(ResourceScatterNd##name, kCuda, ({"T", types}),             \
                     CudaScatterKernel<ScatterOp::op, ScatterBy::kCoordinates>)

MR_ROWS(Update, kUpdate, CudaMoved());
MR_ROWS(Add, kAdd, Numbers());
MR_ROWS(Sub, kSub, Numbers());
MR_ROWS(Mul, kMul, Numbers());
MR_ROWS(Div, kDiv, CudaRealFloats());
MR_ROWS(Min, kMin, Reals());
MR_ROWS(Max, kMax, Reals());
MR_SLICES(Update, kUpdate, CudaMoved());
MR_SLICES(Add, kAdd, Numbers());
MR_SLICES(Sub, kSub, Numbers());
MR_SLICES(Min, kMin, Reals());
MR_SLICES(Max, kMax, Reals());

}  // namespace
}  // namespace millrace
