// SparseSoftmax.
#include <cmath>

#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

using SoftmaxTypes = Types<float, double, half>;

class SparseSoftmaxKernel : public Kernel {
 public:
  explicit SparseSoftmaxKernel(KernelInit& init) { NeedType(init, SoftmaxTypes{}, init.input_type(1)); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    if (input.rank() < 2)
      return InvalidArgument("Input should have rank >= 2, but received shape ", input.shape.ToString());
    MR_RETURN_IF_ERROR(input.CheckBounds());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.values->shape()));
    DispatchType(SoftmaxTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t first = 0; first < input.count();) {
        int64_t last = first + 1;
        while (last < input.count() && CompareRows(input.Row(first), input.Row(last), input.rank() - 1) == 0) ++last;
        Normalize(input.values->data<T>() + first, last - first, out->data<T>() + first);
        first = last;
      }
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static void Normalize(const T* x, int64_t n, T* y) {
    using C = ComputeType<T>;
    C greatest = static_cast<C>(x[0]), sum = 0;
    for (int64_t i = 1; i < n; ++i) greatest = std::max(greatest, static_cast<C>(x[i]));
    for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<C>(x[i]) - greatest);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(std::exp(static_cast<C>(x[i]) - greatest) / sum);
  }
};

Status SparseSoftmaxShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SparseRank(c, 0).status());
  c.set_output(0, c.input(1));
  return absl::OkStatus();
}

// y (g - sum of y g over the row).
Status SparseSoftmaxGradient(GradientContext& c) {
  const Endpoint indices = c.input(0), shape = c.input(2), y = c.output(0), g = c.grad();
  const Endpoint sums = c.Op("SparseReduceSum", {indices, c.Mul(y, g), shape, c.Ints({-1})}, {{"keep_dims", true}});
  const Endpoint centred = c.Op("SparseDenseCwiseAdd", {indices, g, shape, c.Neg(sums)});
  c.set_input_grad(1, c.Mul(centred, y));
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseSoftmax)
    .Input("sp_indices: int64")
    .Input("sp_values: T")
    .Input("sp_shape: int64")
    .Output("output: T")
    .Attr("T: {half, float, double}")
    .Shape(SparseSoftmaxShape)
    .Gradient(SparseSoftmaxGradient)
    .Summary("Softmax over the entries of each innermost row");

MILLRACE_KERNEL(SparseSoftmax, kCpu, SparseSoftmaxKernel);

}  // namespace millrace::sparse
