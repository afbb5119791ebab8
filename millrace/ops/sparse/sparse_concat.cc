// SparseConcat, SparseSplit.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

class SparseConcatKernel : public Kernel {
 public:
  explicit SparseConcatKernel(KernelInit& init) {
    init.Attr("concat_dim", &axis_);
    init.Attr("N", &n_);
  }

  Status Compute(KernelContext& ctx) override {
    std::vector<SparseInput> inputs;
    for (int64_t i = 0; i < n_; ++i) {
      MR_ASSIGN_OR_RETURN(SparseInput input,
                          ReadSparse(ctx.input(static_cast<int>(i)), ctx.input(static_cast<int>(n_ + i)),
                                     ctx.input(static_cast<int>(2 * n_ + i))));
      inputs.push_back(std::move(input));
    }
    const int rank = inputs[0].rank();
    const int64_t axis = axis_ < 0 ? axis_ + rank : axis_;
    if (axis < 0 || axis >= rank) {
      return InvalidArgument("Concat dimension must be in range [", -rank, ", ", rank, "), got ", axis_);
    }
    Shape shape = inputs[0].shape;
    int64_t count = inputs[0].count();
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (inputs[i].rank() != rank) {
        return InvalidArgument("Ranks of all input tensors must match: expected ", rank, " but got ", inputs[i].rank(),
                               " at position ", i);
      }
      for (int d = 0; d < rank; ++d) {
        if (d != axis && inputs[i].shape.dim(d) != shape.dim(d)) {
          return InvalidArgument("Input shapes must match: expected ", shape.dim(d), " for dimension ", d, " but got ",
                                 inputs[i].shape.dim(d), " at position ", i);
        }
      }
      int64_t sum = 0;
      if (__builtin_add_overflow(shape.dim(static_cast<int>(axis)), inputs[i].shape.dim(static_cast<int>(axis)),
                                 &sum)) {
        return InvalidArgument("the sizes of dimension ", axis, " add up to more than fits");
      }
      shape.set_dim(static_cast<int>(axis), sum);
      count += inputs[i].count();
    }
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    return Join(ctx, inputs, static_cast<int>(axis), count, shape);
  }

 private:
  static Status Join(KernelContext& ctx, const std::vector<SparseInput>& inputs, int axis, int64_t count,
                     const Shape& shape) {
    const int rank = shape.rank();
    MR_ASSIGN_OR_RETURN(Tensor joined, ctx.AllocateTemp(DType::kInt64, Shape({count, rank})));
    std::vector<std::pair<const Tensor*, int64_t>> from;
    int64_t before = 0;
    for (const SparseInput& input : inputs) {
      for (int64_t i = 0; i < input.count(); ++i) {
        int64_t* row = joined.data<int64_t>() + static_cast<int64_t>(from.size()) * rank;
        std::copy_n(input.Row(i), rank, row);
        row[axis] += before;
        from.emplace_back(input.values, i);
      }
      before += input.shape.dim(axis);
    }
    std::vector<int> columns(rank);
    std::iota(columns.begin(), columns.end(), 0);
    const SparseInput all{&joined, nullptr, shape};
    const std::vector<int64_t> order = SortedBy(all, columns);
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, count, rank));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({count})));
    for (int64_t i = 0; i < count; ++i) std::copy_n(all.Row(order[i]), rank, indices->data<int64_t>() + i * rank);
    const bool known = DispatchMove(values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < count; ++i) values->raw<T>()[i] = from[order[i]].first->raw<T>()[from[order[i]].second];
    });
    if (!known) return Unimplemented("SparseConcat does not take ", DTypeName(values->dtype()));
    return SetShapeOutput(ctx, 2, shape.dims());
  }

  int64_t axis_ = 0;
  int64_t n_ = 0;
};

class SparseSplitKernel : public Kernel {
 public:
  explicit SparseSplitKernel(KernelInit& init) { init.Attr("num_split", &pieces_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 1));
    MR_ASSIGN_OR_RETURN(const int64_t given, ScalarInput(ctx, 0, "split_dim"));
    const int64_t rank = input.rank();
    if (given < -rank || given >= rank) {
      return InvalidArgument("Input split_dim should be between [", -rank, ", ", rank, "), got ", given);
    }
    const int axis = static_cast<int>(given < 0 ? given + rank : given);
    const int64_t size = input.shape.dim(axis);
    if (pieces_ < 1 || pieces_ > size) {
      return InvalidArgument("Input num_split should be between 1 and the splitting dimension size (", size, "), got ",
                             pieces_);
    }
    MR_RETURN_IF_ERROR(input.CheckBounds());
    // If the size is not divisible, the first pieces are larger by one.
    const int64_t small = size / pieces_, large = size % pieces_;
    const auto piece_of = [&](int64_t at) {
      return at < large * (small + 1) ? at / (small + 1) : large + (at - large * (small + 1)) / small;
    };
    std::vector<std::vector<int64_t>> members(pieces_);
    for (int64_t i = 0; i < input.count(); ++i) members[piece_of(input.Index(i, axis))].push_back(i);
    for (int64_t p = 0; p < pieces_; ++p) {
      const int64_t start = p * small + std::min(p, large);
      Shape shape = input.shape;
      shape.set_dim(axis, small + (p < large));
      MR_RETURN_IF_ERROR(Emit(ctx, input, members[p], axis, start, static_cast<int>(p), shape));
    }
    return absl::OkStatus();
  }

 private:
  Status Emit(KernelContext& ctx, const SparseInput& input, const std::vector<int64_t>& members, int axis,
              int64_t start, int piece, const Shape& shape) const {
    const auto n = static_cast<int64_t>(members.size());
    const int count = static_cast<int>(pieces_), rank = input.rank();
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, piece, n, rank));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(count + piece, Shape({n})));
    for (int64_t i = 0; i < n; ++i) {
      int64_t* row = indices->data<int64_t>() + i * rank;
      std::copy_n(input.Row(members[i]), rank, row);
      row[axis] -= start;
    }
    const bool known = DispatchMove(values->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) values->raw<T>()[i] = input.values->raw<T>()[members[i]];
    });
    if (!known) return Unimplemented("SparseSplit does not take ", DTypeName(values->dtype()));
    return SetShapeOutput(ctx, 2 * count + piece, shape.dims());
  }

  int64_t pieces_ = 0;
};

Status SparseConcatShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t n, c.Attr<int64_t>("N"));
  int64_t rank = -1, count = 0;
  for (int i = 0; i < n; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(i, 2));
    MR_RETURN_IF_ERROR(c.WithRank(static_cast<int>(n) + i, 1).status());
    MR_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(2 * static_cast<int>(n) + i, 1));
    rank = std::max({rank, indices.dim(1), shape.dim(0)});
    count = count < 0 || indices.dim(0) < 0 ? -1 : count + indices.dim(0);
  }
  SetSparseOutput(c, 0, count, rank);
  return absl::OkStatus();
}

Status SparseSplitShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t n, c.Attr<int64_t>("num_split"));
  MR_ASSIGN_OR_RETURN(const int64_t rank, SparseRank(c, 1));
  for (int i = 0; i < n; ++i) {
    c.set_output(i, PartialShape({-1, rank}));
    c.set_output(static_cast<int>(n) + i, PartialShape({-1}));
    c.set_output(2 * static_cast<int>(n) + i, PartialShape({rank}));
  }
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(SparseConcat)
    .Input("indices: N * int64")
    .Input("values: N * T")
    .Input("shapes: N * int64")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Output("output_shape: int64")
    .Attr("concat_dim: int")
    .Attr("N: int >= 2")
    .Attr("T: type")
    .Shape(SparseConcatShape)
    .NotDifferentiable()
    .Summary("Concatenates sparse tensors along a dimension");
MILLRACE_OP(SparseSplit)
    .Input("split_dim: int64")
    .Input("indices: int64")
    .Input("values: T")
    .Input("shape: int64")
    .Output("output_indices: num_split * int64")
    .Output("output_values: num_split * T")
    .Output("output_shape: num_split * int64")
    .Attr("num_split: int >= 1")
    .Attr("T: type")
    .Shape(SparseSplitShape)
    .NotDifferentiable()
    .Summary("Splits a sparse tensor along a dimension");

MILLRACE_KERNEL(SparseConcat, kCpu, SparseConcatKernel);
MILLRACE_KERNEL(SparseSplit, kCpu, SparseSplitKernel);

}  // namespace millrace::sparse
