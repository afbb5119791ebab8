// AddN, AccumulateNV2.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/broadcast.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/list/tensor_list.h"

namespace millrace {
namespace {

// Adds up in blocks that stay in the cache, and in float for 16-bit floats.
template <typename T>
void SumBlock(absl::Span<const T* const> inputs, int64_t begin, int64_t n, T* out) {
  using Acc = ComputeType<T>;
  Acc sum[kBlock];
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Acc>(inputs[0][begin + i]);
  for (size_t k = 1; k < inputs.size(); ++k) {
    const T* x = inputs[k] + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<Acc>(x[i]);
  }
  for (int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(sum[i]);
}

class AddNKernel : public Kernel {
 public:
  explicit AddNKernel(KernelInit& init) {
    const DType dtype = init.output_type(0);
    if (dtype != DType::kVariant && !DispatchType(NumberTypes{}, dtype, [](auto) {})) FailDType(init, dtype);
  }

  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const int count = ctx.num_inputs();
    for (int k = 1; k < count; ++k) {
      if (ctx.input(k).shape() != shape) {
        return InvalidArgument("Inputs to operation ", ctx.node().name(), " of type ", ctx.node().type(),
                               " must have the same size and shape.  Input 0: ", shape.ToString(), " != input ", k,
                               ": ", ctx.input(k).shape().ToString());
      }
    }
    if (count == 1) {
      ctx.SetOutput(0, ctx.input(0));
      return absl::OkStatus();
    }
    if (ctx.input(0).dtype() == DType::kVariant) {
      Tensor sum = ctx.input(0);
      for (int k = 1; k < count; ++k) {
        MR_ASSIGN_OR_RETURN(sum, AddTensors(ctx, sum, ctx.input(k)));
      }
      ctx.SetOutput(0, std::move(sum));
      return absl::OkStatus();
    }
    Status status;
    DispatchType(NumberTypes{}, ctx.input(0).dtype(),
                 [&](auto tag) { status = Add<typename decltype(tag)::type>(ctx, shape); });
    return status;
  }

 private:
  template <typename T>
  static Status Add(KernelContext& ctx, const Shape& shape) {
    absl::InlinedVector<const T*, 8> inputs;
    for (int k = 0; k < ctx.num_inputs(); ++k) inputs.push_back(ctx.input(k).template data<T>());
    MR_ASSIGN_OR_RETURN(Tensor * sum, ctx.ForwardOrAllocateOutput({0, 1}, 0, shape));
    T* out = sum->data<T>();
    ctx.ParallelFor(shape.num_elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kBlock) SumBlock<T>(inputs, i, std::min(kBlock, end - i), out);
    });
    return absl::OkStatus();
  }
};

Status AddNShape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  for (int k = 1; k < c.num_inputs(); ++k) {
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(c.input(k)));
  }
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status AddNGradient(GradientContext& c) {
  for (int k = 0; k < c.num_inputs(); ++k) c.set_input_grad(k, c.grad());
  return c.status();
}

}  // namespace

MILLRACE_OP(AddN)
    .Input("inputs: N * T")
    .Output("sum: T")
    .Attr("N: int >= 1")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
        "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}")
    .Commutative()
    .Shape(AddNShape)
    .Gradient(AddNGradient)
    .Summary("The sum of all inputs, which have the same shape");
MILLRACE_OP(AccumulateNV2)
    .Input("inputs: N * T")
    .Output("sum: T")
    .Attr("N: int >= 1")
    .Attr("T: numbertype")
    .Attr("shape: shape")
    .Commutative()
    .Shape(AddNShape)
    .Gradient(AddNGradient)
    .Summary("The sum of all inputs, which have the same shape");

MILLRACE_KERNEL(AddN, kCpu, AddNKernel);
MILLRACE_KERNEL(AccumulateNV2, kCpu, AddNKernel);

}  // namespace millrace
