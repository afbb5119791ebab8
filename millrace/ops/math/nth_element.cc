// NthElement.
#include <algorithm>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

class NthElementKernel : public Kernel {
 public:
  explicit NthElementKernel(KernelInit& init) {
    init.Attr("reverse", &reverse_);
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {}))
      FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (ctx.input(1).rank() != 0) {
      return InvalidArgument("N must be scalar but has rank ", ctx.input(1).rank());
    }
    MR_ASSIGN_OR_RETURN(int64_t n, ScalarInput(ctx, 1, "n"));
    if (n < 0) return InvalidArgument("n must be non-negative but is ", n);
    if (input.rank() < 1)
      return InvalidArgument("Input must be at least rank 1 but is rank ", input.rank());
    const int64_t length = input.dim(input.rank() - 1);
    if (n >= length) return InvalidArgument("Input must have at least n+1 = ", n + 1, " columns");
    if (reverse_) n = length - n - 1;
    Shape shape = input.shape();
    shape.RemoveDim(shape.rank() - 1);
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(0, shape));
    DispatchType(RealTypes{}, input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* x = input.data<T>();
      T* out = values->data<T>();
      const int64_t grain = std::max<int64_t>(1, kCostlyGrain / length);
      ctx.ParallelFor(shape.num_elements(), grain, [&](int64_t begin, int64_t end) {
        std::vector<T> row(length);
        for (int64_t r = begin; r < end; ++r) {
          row.assign(x + r * length, x + (r + 1) * length);
          std::nth_element(row.begin(), row.begin() + n, row.end(), Before<T>);
          out[r] = row[n];
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  // An order also where there are NaNs, which come last.
  template <typename T>
  static bool Before(const T& a, const T& b) {
    return a < b || (a == a && b != b);
  }

  bool reverse_ = false;
};

Status NthElementShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (!input.known_rank()) return absl::OkStatus();
  c.set_output(0, PartialShape(input.dims().subspan(0, input.rank() - 1)));
  return absl::OkStatus();
}

// Shared evenly among the elements of the row that equal the one found.
Status NthElementGradient(GradientContext& c) {
  const Endpoint input = c.input(0), last = c.Scalar<int32_t>(-1);
  const Endpoint found = c.Op("ExpandDims", {c.output(0), last}),
                 g = c.Op("ExpandDims", {c.grad(), last});
  const Endpoint is_found = c.Cast(c.Op("Equal", {input, found}), g.dtype());
  const Endpoint ties = c.Op("Sum", {is_found, last}, {{"keep_dims", true}});
  c.set_input_grad(0, c.Mul(c.Div(is_found, ties), g));
  return c.status();
}

}  // namespace

MILLRACE_OP(NthElement)
    .Input("input: T").Input("n: int32").Output("values: T").Attr("reverse: bool = false")
    .Attr("T: realnumbertype")
    .Shape(NthElementShape)
    .Gradient(NthElementGradient)
    .Summary("The element that would be at place n of each sorted row");

MILLRACE_KERNEL(NthElement, kCpu, NthElementKernel);

}  // namespace millrace
