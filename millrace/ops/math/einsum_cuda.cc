// Einsum on a GPU: operands are put into the order of a batch of products, which cuBLAS computes.
#include "millrace/ops/kernels/cuda/gpu_product.h"
#include "millrace/ops/kernels/cuda/gpu_reduction.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/math/einsum_view.h"

namespace millrace {
namespace {

// Copies between a view and elements that are contiguous in the order of `labels`.
CopyBox BoxOf(const EinsumLabels& labels, const EinsumView& view, const EinsumDims& dims, bool to_view) {
  CopyBox box;
  int64_t stride = 1;
  for (size_t i = labels.size(); i-- > 0;) {
    const int64_t size = dims.sizes.at(labels[i]), there = view.strides.at(labels[i]);
    to_view ? box.Add(size, stride, there) : box.Add(size, there, stride);
    stride *= size;
  }
  return box;
}

class CudaEinsumKernel : public Kernel {
 public:
  explicit CudaEinsumKernel(KernelInit& init) : product_(GpuProduct::Of(init.output_type(0), init.output_type(0))) {
    std::string text;
    init.Attr("equation", &text);
    StatusOr<EinsumEquation> equation = EinsumEquation::Parse(text, init.node().num_inputs());
    if (equation.ok()) {
      equation_ = *std::move(equation);
    } else {
      init.Fail(equation.status());
    }
    if (!product_) FailDType(init, init.output_type(0));
    if (const Status status = Cublas::Get().status(); !status.ok()) init.Fail(status);
    const ReductionProgram sum = {.combine = "AddFn", .identity = "Acc(0)"};
    init.Fail(sum_.Init(sum, init.output_type(0), CudaDevice::GpuOf(init.device())->ordinal()));
  }

  Status Compute(KernelContext& ctx) override {
    std::vector<PartialShape> shapes;
    for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.input(i).shape());
    MR_ASSIGN_OR_RETURN(const EinsumDims dims, EinsumDims::Make(equation_, shapes));
    MR_ASSIGN_OR_RETURN(const Shape shape, dims.OutputShape());
    const EinsumView a(dims.inputs[0], ctx.input(0).shape(), dims.sizes), out(dims.output, shape, dims.sizes);
    CudaCall call(ctx);
    if (ctx.num_inputs() == 1) {
      // The labels of the output in order; a broadcast label keeps its size of 1.
      const EinsumLabels kept = FilterLabels(out.labels, [&](EinsumLabel l) { return HasLabel(a.labels, l); });
      MR_ASSIGN_OR_RETURN(const Tensor packed, Pack(ctx, call, ctx.input(0), a, kept, dims));
      return Unpack(ctx, call, packed, kept, out, dims, shape);
    }
    const EinsumView b(dims.inputs[1], ctx.input(1).shape(), dims.sizes);
    const EinsumProduct labels = EinsumProduct::Of(a, b, out);
    MR_ASSIGN_OR_RETURN(const Tensor left,
                        Pack(ctx, call, ctx.input(0), a, JoinLabels(labels.batch, labels.free_a, labels.inner), dims));
    MR_ASSIGN_OR_RETURN(const Tensor right,
                        Pack(ctx, call, ctx.input(1), b, JoinLabels(labels.batch, labels.inner, labels.free_b), dims));
    const GemmShape matrices = {
        .m = dims.Count(labels.free_a), .n = dims.Count(labels.free_b), .k = dims.Count(labels.inner)};
    const int64_t count = dims.Count(labels.batch);
    MR_ASSIGN_OR_RETURN(const Shape all, Shape::Make({count, matrices.m, matrices.n}));
    MR_ASSIGN_OR_RETURN(const Tensor product, Tensor::Make(ctx.output_type(0), all, call.gpu()->allocator()));
    if (product.num_elements() != 0) {
      MR_ASSIGN_OR_RETURN(const void* x, call.Memory(left));
      MR_ASSIGN_OR_RETURN(const void* y, call.Memory(right));
      MR_RETURN_IF_ERROR(product_->Run(call, matrices, x, y, product.raw_data(),
                                       {.count = count,
                                        .step_a = matrices.m * matrices.k,
                                        .step_b = matrices.k * matrices.n,
                                        .step_c = matrices.m * matrices.n}));
    }
    return Unpack(ctx, call, product, JoinLabels(labels.batch, labels.free_a, labels.free_b), out, dims, shape);
  }

 private:
  // The elements in the order of `labels`, summed over the view's other labels.
  StatusOr<Tensor> Pack(KernelContext& ctx, const CudaCall& call, const Tensor& x, const EinsumView& view,
                        const EinsumLabels& labels, const EinsumDims& dims) const {
    const EinsumLabels others = FilterLabels(view.labels, [&](EinsumLabel l) { return !HasLabel(labels, l); });
    const int64_t count = dims.Count(labels), summed = dims.Count(others);
    if (others.empty() && labels == view.labels && count == x.num_elements()) return x;
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({count, summed}));
    MR_ASSIGN_OR_RETURN(Tensor packed, Tensor::Make(x.dtype(), shape, call.gpu()->allocator()));
    if (shape.num_elements() != 0) {
      const CopyBox box = BoxOf(JoinLabels(labels, others), view, dims, /*to_view=*/false);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, box, x, 0, &packed, 0));
    }
    if (others.empty()) return packed;
    MR_ASSIGN_OR_RETURN(Tensor sums, Tensor::Make(x.dtype(), Shape({count}), call.gpu()->allocator()));
    const ReduceAxes::Run runs[] = {{count, false}, {summed, true}};
    MR_RETURN_IF_ERROR(sum_.Run(call, runs, packed, &sums));
    return sums;
  }

  // Copies elements in the order of `labels` to the output; off-diagonal elements are 0.
  static Status Unpack(KernelContext& ctx, const CudaCall& call, const Tensor& packed, const EinsumLabels& labels,
                       const EinsumView& out, const EinsumDims& dims, const Shape& shape) {
    if (labels == out.labels && packed.num_elements() == shape.num_elements()) {
      ctx.SetOutput(0, packed.ViewAs(packed.dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * output, call.Output(0, shape));
    if (dims.Count(labels) != shape.num_elements()) MR_RETURN_IF_ERROR(ClearTensor(ctx, output));
    if (packed.num_elements() == 0) return absl::OkStatus();
    return StridedCopy(ctx, BoxOf(labels, out, dims, /*to_view=*/true), packed, 0, output, 0);
  }

  const std::optional<GpuProduct> product_;
  EinsumEquation equation_;
  GpuReduction sum_;
};

MILLRACE_KERNEL_OF(Einsum, kCuda, ({"T", CudaFloats()}), CudaEinsumKernel);

}  // namespace
}  // namespace millrace
