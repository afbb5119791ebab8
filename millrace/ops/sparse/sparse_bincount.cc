// SparseBincount: counts, or sums the weights of, values in a sparse vector or in the rows of a sparse matrix.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

using WeightTypes = Types<int32_t, int64_t, float, double>;

class SparseBincountKernel : public Kernel {
 public:
  explicit SparseBincountKernel(KernelInit& init) {
    init.Attr("binary_output", &binary_);
    NeedType(init, WeightTypes{}, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &size_input = ctx.input(3), &weights = ctx.input(4);
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    if (size_input.rank() != 0)
      return InvalidArgument("Shape must be rank 0 but is rank ", size_input.rank(), " for size");
    const int64_t size = IntAt(size_input, 0);
    if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
    if (input.rank() < 1 || input.rank() > 2) {
      return InvalidArgument("the input must have 1 or 2 dimensions, but has ", input.rank());
    }
    MR_RETURN_IF_ERROR(input.CheckBounds());
    if (weights.num_elements() != 0 && weights.num_elements() != input.count()) {
      return InvalidArgument("Input indices and weights must have the same size, not ", input.count(), " and ",
                             weights.num_elements());
    }
    const bool matrix = input.rank() == 2;
    MR_ASSIGN_OR_RETURN(const Shape shape, matrix ? Shape::Make({input.shape.dim(0), size}) : Shape::Make({size}));
    for (int64_t i = 0; !matrix && i < input.count(); ++i) {
      if (IntAt(*input.values, i) < 0) return InvalidArgument("Input arr must be non-negative!");
    }
    MR_ASSIGN_OR_RETURN(Tensor * bins, ctx.AllocateOutput(0, shape));
    DispatchType(WeightTypes{}, bins->dtype(),
                 [&](auto tag) { Count<typename decltype(tag)::type>(input, weights, size, bins); });
    return absl::OkStatus();
  }

 private:
  // Values outside the bins are ignored.
  template <typename T>
  void Count(const SparseInput& input, const Tensor& weights, int64_t size, Tensor* output) const {
    T* const bins = output->data<T>();
    std::fill_n(bins, output->num_elements(), T(0));
    const T* const weight = weights.num_elements() == 0 ? nullptr : weights.data<T>();
    for (int64_t i = 0; i < input.count(); ++i) {
      const int64_t value = IntAt(*input.values, i);
      if (value < 0 || value >= size) continue;
      T& bin = bins[(input.rank() == 2 ? input.Index(i, 0) * size : 0) + value];
      if (binary_) {
        bin = T(1);
      } else {
        bin += weight == nullptr ? T(1) : weight[i];
      }
    }
  }

  bool binary_ = false;
};

Status SparseBincountShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  int64_t size = PartialShape::kUnknown;
  if (const Tensor* constant = c.constant(3); constant != nullptr && constant->num_elements() == 1) {
    size = IntAt(*constant, 0);
    if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
  }
  MR_ASSIGN_OR_RETURN(const PartialShape shape, c.ShapeFromInput(2));
  if (!shape.known_rank()) return absl::OkStatus();
  if (shape.rank() > 2) return InvalidArgument("Input must be less than rank 2");
  c.set_output(0, shape.rank() == 2 ? PartialShape({shape.dim(0), size}) : PartialShape({size}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(SparseBincount)
    .Input("indices: int64")
    .Input("values: Tidx")
    .Input("dense_shape: int64")
    .Input("size: Tidx")
    .Input("weights: T")
    .Output("output: T")
    .Attr("Tidx: {int32, int64}")
    .Attr("T: {int32, int64, float, double}")
    .Attr("binary_output: bool = false")
    .Shape(SparseBincountShape)
    .NotDifferentiable()
    .Summary("Counts, or sums the weights of, each of 0 .. size-1 in a sparse tensor, per row of a matrix");
MILLRACE_KERNEL(SparseBincount, kCpu, SparseBincountKernel);

}  // namespace millrace::sparse
