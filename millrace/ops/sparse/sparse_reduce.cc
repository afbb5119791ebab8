// SparseReduceSum, SparseReduceMax, and the same with sparse results.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

struct Add {
  template <typename T>
  static T Combine(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Greatest {
  template <typename T>
  static T Combine(T a, T b) {
    return a < b ? b : a;
  }
};

// Entries grouped by the dimensions that are kept.
struct Groups {
  std::vector<int> kept;        // dimensions
  std::vector<int64_t> order;   // entries, group after group
  std::vector<int64_t> begins;  // of groups in `order`, and the end
  int64_t count() const { return static_cast<int64_t>(begins.size()) - 1; }
};

StatusOr<Groups> GroupEntries(const SparseInput& input, const Tensor& axes) {
  if (axes.rank() > 1)
    return InvalidArgument("reduction_axes must be a scalar or vector, but has shape ", axes.shape().ToString());
  const int rank = input.rank();
  std::vector<bool> reduced(rank, false);
  for (int64_t i = 0; i < axes.num_elements(); ++i) {
    const int64_t axis = axes.data<int32_t>()[i];
    if (axis < -rank || axis >= rank)
      return InvalidArgument("Invalid reduction dimension ", axis, ", for input with ", rank, " dimensions.");
    reduced[axis < 0 ? axis + rank : axis] = true;
  }
  Groups groups;
  std::vector<int> all;
  for (int d = 0; d < rank; ++d) {
    if (!reduced[d]) groups.kept.push_back(d);
  }
  all = groups.kept;
  for (int d = 0; d < rank; ++d) {
    if (reduced[d]) all.push_back(d);
  }
  groups.order = SortedBy(input, all);
  for (int64_t i = 0; i < input.count(); ++i) {
    const auto same = [&](int d) { return input.Index(groups.order[i], d) == input.Index(groups.order[i - 1], d); };
    if (i == 0 || !std::all_of(groups.kept.begin(), groups.kept.end(), same)) groups.begins.push_back(i);
  }
  groups.begins.push_back(input.count());
  return groups;
}

// The dimensions of the result.
Shape::Dims ResultDims(const SparseInput& input, const Groups& groups, bool keep_dims) {
  Shape::Dims dims;
  for (int d = 0; d < input.rank(); ++d) {
    const bool kept = std::count(groups.kept.begin(), groups.kept.end(), d) > 0;
    if (kept) dims.push_back(input.shape.dim(d));
    if (!kept && keep_dims) dims.push_back(1);
  }
  return dims;
}

template <typename T, typename Op>
T ReduceGroup(const SparseInput& input, const Groups& groups, int64_t g) {
  using C = ComputeType<T>;
  const T* values = input.values->data<T>();
  C result = static_cast<C>(values[groups.order[groups.begins[g]]]);
  for (int64_t i = groups.begins[g] + 1; i < groups.begins[g + 1]; ++i) {
    result = Op::Combine(result, static_cast<C>(values[groups.order[i]]));
  }
  return static_cast<T>(result);
}

template <typename Op, typename ValueTypes, bool kSparse>
class SparseReduceKernel : public Kernel {
 public:
  explicit SparseReduceKernel(KernelInit& init) {
    init.Attr("keep_dims", &keep_dims_);
    NeedType(init, ValueTypes{}, init.input_type(1));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    // TensorFlow's code for it.
    if (const Status status = input.CheckBounds(); !kSparse && !status.ok()) return Internal(status.message());
    MR_ASSIGN_OR_RETURN(const Groups groups, GroupEntries(input, ctx.input(3)));
    const Shape::Dims dims = ResultDims(input, groups, keep_dims_);
    return kSparse ? ToSparse(ctx, input, groups, dims) : ToDense(ctx, input, groups, dims);
  }

 private:
  static Status ToDense(KernelContext& ctx, const SparseInput& input, const Groups& groups, const Shape::Dims& dims) {
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(ValueTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(out->data<T>(), out->num_elements(), T(0));
      for (int64_t g = 0; g < groups.count(); ++g) {
        int64_t at = 0;
        for (int d : groups.kept) at = at * input.shape.dim(d) + input.Index(groups.order[groups.begins[g]], d);
        out->data<T>()[at] = ReduceGroup<T, Op>(input, groups, g);
      }
    });
    return absl::OkStatus();
  }

  Status ToSparse(KernelContext& ctx, const SparseInput& input, const Groups& groups, const Shape::Dims& dims) const {
    const int rank = static_cast<int>(dims.size());
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, groups.count(), rank));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({groups.count()})));
    for (int64_t g = 0; g < groups.count(); ++g) {
      int64_t* row = indices->data<int64_t>() + g * rank;
      std::fill_n(row, rank, 0);
      for (size_t k = 0; k < groups.kept.size(); ++k) {
        row[keep_dims_ ? groups.kept[k] : static_cast<int>(k)] =
            input.Index(groups.order[groups.begins[g]], groups.kept[k]);
      }
    }
    DispatchType(ValueTypes{}, values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t g = 0; g < groups.count(); ++g) values->data<T>()[g] = ReduceGroup<T, Op>(input, groups, g);
    });
    return SetShapeOutput(ctx, 2, dims);
  }

  bool keep_dims_ = false;
};

Status SparseReduceShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SparseRank(c, 0).status());
  return absl::OkStatus();
}
Status SparseReduceSparseShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(SparseRank(c, 0).status());
  SetSparseOutput(c, 0, -1, -1);
  return absl::OkStatus();
}

// Each entry gets the gradient of the element that it was summed into.
Status SparseReduceSumGradient(GradientContext& c) {
  const Endpoint indices = c.input(0), shape = c.input(2), axes = c.input(3);
  const Endpoint kept_shape =
      c.Op("Shape", {c.Op("SparseReduceSum", {indices, c.input(1), shape, axes}, {{"keep_dims", true}})},
           {{"out_type", DType::kInt64}});
  const Endpoint one = c.Scalar<int64_t>(1);
  const Endpoint scale = c.Op("FloorDiv", {shape, c.Op("Maximum", {kept_shape, one})});
  const Endpoint places = c.Op("FloorDiv", {indices, c.Op("Maximum", {scale, one})});
  c.set_input_grad(1, c.Op("GatherNd", {c.Reshape(c.grad(), kept_shape), places}));
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseReduceSum)
    .Input("input_indices: int64")
    .Input("input_values: T")
    .Input("input_shape: int64")
    .Input("reduction_axes: int32")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Shape(SparseReduceShape)
    .Gradient(SparseReduceSumGradient)
    .Summary("Sums of a sparse tensor along dimensions, as a dense tensor");
MILLRACE_OP(SparseReduceMax)
    .Input("input_indices: int64")
    .Input("input_values: T")
    .Input("input_shape: int64")
    .Input("reduction_axes: int32")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: realnumbertype")
    .Shape(SparseReduceShape)
    .NotDifferentiable()
    .Summary("Maxima of a sparse tensor along dimensions, as a dense tensor; 0 where there are no entries");
MILLRACE_OP(SparseReduceSumSparse)
    .Input("input_indices: int64")
    .Input("input_values: T")
    .Input("input_shape: int64")
    .Input("reduction_axes: int32")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Output("output_shape: int64")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Shape(SparseReduceSparseShape)
    .NotDifferentiable()
    .Summary("Sums of a sparse tensor along dimensions, as a sparse tensor");
MILLRACE_OP(SparseReduceMaxSparse)
    .Input("input_indices: int64")
    .Input("input_values: T")
    .Input("input_shape: int64")
    .Input("reduction_axes: int32")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Output("output_shape: int64")
    .Attr("keep_dims: bool = false")
    .Attr("T: realnumbertype")
    .Shape(SparseReduceSparseShape)
    .NotDifferentiable()
    .Summary("Maxima of a sparse tensor along dimensions, as a sparse tensor");

MILLRACE_KERNEL(SparseReduceSum, kCpu, SparseReduceKernel<Add, NumberTypes, false>);
MILLRACE_KERNEL(SparseReduceMax, kCpu, SparseReduceKernel<Greatest, RealTypes, false>);
MILLRACE_KERNEL(SparseReduceSumSparse, kCpu, SparseReduceKernel<Add, NumberTypes, true>);
MILLRACE_KERNEL(SparseReduceMaxSparse, kCpu, SparseReduceKernel<Greatest, RealTypes, true>);

}  // namespace millrace::sparse
