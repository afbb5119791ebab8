// UnsortedSegmentSum, Prod, Max and Min on a GPU. A segment out of range is left out.
#include <cstring>
#include <limits>

#include "millrace/device/device_memory.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/math/segment.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using SegmentTypes = JoinTypes<FloatTypes, JoinTypes<IntTypes, ComplexTypes>::type>::type;

// What a segment without rows has, as bits.
struct Bits {
  alignas(16) char bytes[16] = {};
};
template <template <typename> class Op, typename List>
Bits IdentityOf(DType dtype) {
  Bits bits;
  DispatchType(List{}, dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T identity = Op<T>::Identity();
    std::memcpy(bits.bytes, &identity, sizeof(T));
  });
  return bits;
}

struct SegmentOp {
  const char* combine;
  Bits identity;
};
SegmentOp SegmentOpOf(const Node& node, DType dtype) {
  if (node.is_type("UnsortedSegmentProd")) return {"MulFn()(a, x)", IdentityOf<SegmentMultiply, SegmentTypes>(dtype)};
  if (node.is_type("UnsortedSegmentMax")) return {"GreaterOfFn()(x, a)", IdentityOf<SegmentGreatest, RealTypes>(dtype)};
  if (node.is_type("UnsortedSegmentMin")) return {"LesserOfFn()(x, a)", IdentityOf<SegmentLeast, RealTypes>(dtype)};
  return {"AddFn()(a, x)", {}};
}

class CudaUnsortedSegmentKernel : public Kernel {
 public:
  explicit CudaUnsortedSegmentKernel(KernelInit& init) : op_(SegmentOpOf(init.node(), init.input_type(0))) {
    const int ordinal = CudaDevice::GpuOf(init.device())->ordinal();
    // 16-bit floats are combined as float and rounded once.
    init.Fail(update_.Init(op_.combine, /*rounds=*/false, init.input_type(0), init.input_type(1), ordinal));
    fill_ = CompileFor(init, RowsProgram::Fill(static_cast<int>(SizeOf(init.input_type(0)))), RowsProgram::kFill);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &ids = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfSegments(ctx));
    CudaCall call(ctx);
    const RowIndex index = RowIndex::Of(shape.dim(0));
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, ids, index, /*is_coordinates=*/false, /*negative_is_none=*/true));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    int64_t n = out->num_elements();
    if (n == 0) return absl::OkStatus();
    Bits identity = op_.identity;
    void* to = out->raw_data();
    std::vector<void*> arguments = {&n, &identity, &to};
    MR_RETURN_IF_ERROR(call.LaunchOverElements(ctx.node().type(), fill_, n, arguments));
    return update_.Run(call, index, ids.num_elements(), shape.Product(1, shape.rank()), ids, data, out);
  }

 private:
  const SegmentOp op_;
  cudaKernel_t fill_ = nullptr;
  GpuRowUpdate update_;
};

MILLRACE_KERNEL_OF(UnsortedSegmentSum, kCuda, ({"T", With(CudaNumbers(), {DType::kInt32})}), CudaUnsortedSegmentKernel);
MILLRACE_KERNEL_OF(UnsortedSegmentProd, kCuda, ({"T", With(CudaNumbers(), {DType::kInt32})}),
                   CudaUnsortedSegmentKernel);
MILLRACE_KERNEL_OF(UnsortedSegmentMax, kCuda, ({"T", With(CudaReals(), {DType::kInt32})}), CudaUnsortedSegmentKernel);
MILLRACE_KERNEL_OF(UnsortedSegmentMin, kCuda, ({"T", With(CudaReals(), {DType::kInt32})}), CudaUnsortedSegmentKernel);

}  // namespace
}  // namespace millrace
