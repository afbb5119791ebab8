// SparseReshape.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

class SparseReshapeKernel : public Kernel {
 public:
  explicit SparseReshapeKernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &target = ctx.input(2);
    if (indices.rank() != 2) {
      return InvalidArgument("Input indices should be a matrix but received shape ", indices.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Shape from, ReadShape(ctx.input(1), "Input shape"));
    if (indices.dim(1) != from.rank()) {
      return InvalidArgument("indices have ", indices.dim(1), " columns, but the shape has ", from.rank(),
                             " dimensions");
    }
    if (target.rank() != 1) {
      return InvalidArgument("Target shape should be a vector but received shape ", target.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Shape to, Complete(from, target));
    const int64_t n = indices.dim(0);
    const int width = to.rank();
    MR_ASSIGN_OR_RETURN(Tensor * out, AllocateIndices(ctx, 0, n, width));
    // An index outside the shape is converted like any other and stays outside.
    const SparseInput input{&indices, nullptr, from};
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = input.Offset(i);
      for (int d = 0; d < width; ++d) {
        const int64_t stride = std::max<int64_t>(to.Product(d + 1, width), 1);
        out->data<int64_t>()[i * width + d] = at / stride;
        at %= stride;
      }
    }
    return SetShapeOutput(ctx, 1, to.dims());
  }

 private:
  // The target shape with its -1, if any, resolved.
  static StatusOr<Shape> Complete(const Shape& from, const Tensor& target) {
    Shape::Dims dims;
    int unknown = -1;
    if (target.dim(0) > Shape::kMaxRank) return InvalidArgument("the target shape has too many dimensions");
    for (int64_t d = 0; d < target.dim(0); ++d) {
      const int64_t size = target.data<int64_t>()[d];
      if (size < -1) return InvalidArgument("size ", d, " must be non-negative, not ", size);
      if (size == -1) {
        if (unknown >= 0) {
          return InvalidArgument("only one output dimension may be -1, not both ", unknown, " and ", d);
        }
        unknown = static_cast<int>(d);
      }
      dims.push_back(size == -1 ? 1 : size);
    }
    MR_ASSIGN_OR_RETURN(Shape to, Shape::Make(dims));
    const int64_t size = from.num_elements();
    if (unknown >= 0) {
      const int64_t others = to.num_elements();
      if (others <= 0) {
        return InvalidArgument(
            "reshape cannot infer the missing input size for an empty tensor unless all specified input "
            "sizes are non-zero");
      }
      if (size % others != 0) {
        return InvalidArgument("Input to reshape is a SparseTensor with ", size,
                               " dense values, but the requested shape requires a multiple of ", others,
                               ". input_shape=", from.ToString(), " output_shape=", to.ToString());
      }
      to.set_dim(unknown, size / others);
    }
    if (to.num_elements() != size) {
      return InvalidArgument("Input to reshape is a tensor with ", size, " dense values, but the requested shape has ",
                             to.num_elements(), ". input_shape=", from.ToString(), " output_shape=", to.ToString());
    }
    return to;
  }
};

Status SparseReshapeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_ASSIGN_OR_RETURN(const PartialShape target, c.WithRank(2, 1));
  c.set_output(0, PartialShape({indices.dim(0), target.dim(0)}));
  c.set_output(1, PartialShape({target.dim(0)}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(SparseReshape)
    .Input("input_indices: int64")
    .Input("input_shape: int64")
    .Input("new_shape: int64")
    .Output("output_indices: int64")
    .Output("output_shape: int64")
    .Shape(SparseReshapeShape)
    .NotDifferentiable()
    .Summary("Reshapes a sparse tensor");

MILLRACE_KERNEL(SparseReshape, kCpu, SparseReshapeKernel);

}  // namespace millrace::sparse
