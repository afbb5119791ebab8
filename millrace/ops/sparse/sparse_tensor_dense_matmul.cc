// SparseTensorDenseMatMul.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

using ProductTypes = Types<float, double, half, bfloat16, int32_t, std::complex<float>, std::complex<double>>;

template <typename T>
T Conjugate(T x) {
  if constexpr (kIsComplex<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

class SparseTensorDenseMatMulKernel : public Kernel {
 public:
  explicit SparseTensorDenseMatMulKernel(KernelInit& init) {
    init.Attr("adjoint_a", &adjoint_a_);
    init.Attr("adjoint_b", &adjoint_b_);
    if (!DispatchType(ProductTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &a_shape = ctx.input(2), &b = ctx.input(3);
    if (b.rank() != 2) return InvalidArgument("Tensor 'b' is not a matrix");
    if (a_shape.rank() != 1 || a_shape.num_elements() != 2) {
      return InvalidArgument("Tensor 'a_shape' must have 2 elements");
    }
    if (values.rank() != 1) return InvalidArgument("Tensor 'a_values' is not a vector");
    if (indices.rank() != 2 || indices.dim(1) != 2 || indices.dim(0) != values.dim(0)) {
      return InvalidArgument("a_indices must have the shape [", values.dim(0), ",2], not ", indices.shape().ToString());
    }
    const int64_t rows = IntAt(a_shape, adjoint_a_ ? 1 : 0), inner = IntAt(a_shape, adjoint_a_ ? 0 : 1);
    if (rows < 0 || inner < 0) return InvalidArgument("a_shape must not be negative");
    if (b.dim(adjoint_b_ ? 1 : 0) != inner) {
      return InvalidArgument("Cannot multiply A and B because inner dimension does not match: ", inner, " vs. ",
                             b.dim(adjoint_b_ ? 1 : 0), ".  Did you forget a transpose?");
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({rows, b.dim(adjoint_b_ ? 0 : 1)}));
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, shape));
    Status status;
    DispatchType(ProductTypes{}, product->dtype(),
                 [&](auto tag) { status = Multiply<typename decltype(tag)::type>(ctx, rows, inner, product); });
    return status;
  }

 private:
  template <typename T>
  Status Multiply(KernelContext& ctx, int64_t rows, int64_t inner, Tensor* product) const {
    using C = ComputeType<T>;
    const Tensor& indices = ctx.input(0);
    const T *values = ctx.input(1).data<T>(), *b = ctx.input(3).data<T>();
    const int64_t width = product->dim(1);
    const int64_t row_step = adjoint_b_ ? 1 : width, column_step = adjoint_b_ ? inner : 1;
    Tensor sums = *product;
    if constexpr (!std::is_same_v<C, T>) {
      MR_ASSIGN_OR_RETURN(sums, ctx.AllocateTemp(DTypeOf<C>(), product->shape()));
    }
    C* const sum = sums.data<C>();
    std::fill_n(sum, sums.num_elements(), C(0));
    for (int64_t i = 0, n = indices.dim(0); i < n; ++i) {
      const int64_t row = IntAt(indices, 2 * i + (adjoint_a_ ? 1 : 0));
      const int64_t k = IntAt(indices, 2 * i + (adjoint_a_ ? 0 : 1));
      if (row < 0 || row >= rows || k < 0 || k >= inner) {
        const bool bad_k = k < 0 || k >= inner;
        return InvalidArgument(bad_k ? "k (" : "m (", bad_k ? k : row, ") from index[", i, ",",
                               bad_k == adjoint_a_ ? 0 : 1, "] out of bounds (>=", bad_k ? inner : rows, ")");
      }
      const C value = adjoint_a_ ? Conjugate(static_cast<C>(values[i])) : static_cast<C>(values[i]);
      C* to = sum + row * width;
      for (int64_t j = 0; j < width; ++j) {
        const C factor = static_cast<C>(b[k * row_step + j * column_step]);
        to[j] += value * (adjoint_b_ ? Conjugate(factor) : factor);
      }
    }
    if constexpr (!std::is_same_v<C, T>) Narrow(sum, product->data<T>(), sums.num_elements());
    return absl::OkStatus();
  }

  bool adjoint_a_ = false;
  bool adjoint_b_ = false;
};

Status SparseTensorDenseMatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(3, 2));
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_ASSIGN_OR_RETURN(const bool adjoint_a, c.Attr<bool>("adjoint_a"));
  MR_ASSIGN_OR_RETURN(const bool adjoint_b, c.Attr<bool>("adjoint_b"));
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.ShapeFromInput(2));
  const bool known = a.known_rank() && a.rank() == 2;
  c.set_output(0, PartialShape({known ? a.dim(adjoint_a ? 1 : 0) : PartialShape::kUnknown, b.dim(adjoint_b ? 0 : 1)}));
  return absl::OkStatus();
}

Status SparseTensorDenseMatMulGradient(GradientContext& c) {
  const Endpoint indices = c.input(0), values = c.input(1), shape = c.input(2), b = c.input(3), g = c.grad();
  const bool adjoint_a = c.AttrOr<bool>("adjoint_a", false), adjoint_b = c.AttrOr<bool>("adjoint_b", false);
  const auto adjoint = [&](Endpoint x) { return c.Op("ConjugateTranspose", {x, c.Ints({1, 0})}); };
  const Endpoint gb = c.Op("SparseTensorDenseMatMul", {indices, values, shape, g}, {{"adjoint_a", !adjoint_a}});
  c.set_input_grad(3, adjoint_b ? adjoint(gb) : gb);
  // One element of a meets one row of the gradient and one of b.
  Node* const parts = c.AddNode("Unpack", {indices}, {{"num", 2}, {"axis", 1}});
  if (parts == nullptr) return c.status();
  const Endpoint row{parts, adjoint_a ? 1 : 0}, column{parts, adjoint_a ? 0 : 1};
  const Endpoint zero = c.Scalar<int32_t>(0);
  const Endpoint from_g = c.Op("GatherV2", {g, row, zero});
  const Endpoint from_b = c.Op("GatherV2", {adjoint_b ? adjoint(b) : b, column, zero});
  const Endpoint sums = c.Op("Sum", {c.Mul(from_g, c.Conj(from_b)), c.Scalar<int32_t>(1)});
  c.set_input_grad(1, adjoint_a ? c.Conj(sums) : sums);
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseTensorDenseMatMul)
    .Input("a_indices: Tindices")
    .Input("a_values: T")
    .Input("a_shape: int64")
    .Input("b: T")
    .Output("product: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64} = int64")
    .Attr("adjoint_a: bool = false")
    .Attr("adjoint_b: bool = false")
    .Shape(SparseTensorDenseMatMulShape)
    .Gradient(SparseTensorDenseMatMulGradient)
    .Summary("The product of a sparse and a dense matrix");

MILLRACE_KERNEL(SparseTensorDenseMatMul, kCpu, SparseTensorDenseMatMulKernel);

}  // namespace millrace
