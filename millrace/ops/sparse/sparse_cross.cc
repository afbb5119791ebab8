// SparseCross, SparseCrossV2, SparseCrossHashed and RaggedCross: crosses of categorical features.
#include "millrace/ops/sparse/feature_columns.h"

namespace millrace::sparse {
namespace {

// Inputs [first, ...): N indices, N values, N shapes and then dense matrices.
StatusOr<FeatureCrosses> SparseCrossInput(const KernelContext& ctx, int sparse, int dense) {
  std::vector<FeatureColumn> columns;
  for (int i = 0; i < sparse; ++i) {
    MR_ASSIGN_OR_RETURN(columns.emplace_back(),
                        FeatureColumn::FromSparse(ctx.input(i), ctx.input(sparse + i), ctx.input(2 * sparse + i)));
  }
  for (int i = 0; i < dense; ++i) {
    MR_ASSIGN_OR_RETURN(columns.emplace_back(), FeatureColumn::FromDense(ctx.input(3 * sparse + i)));
  }
  return FeatureCrosses::Make(std::move(columns));
}

Status GiveSparseCrosses(KernelContext& ctx, const FeatureCrosses& crosses, const CrossOptions& options) {
  MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, crosses.total(), 2));
  MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({crosses.total()})));
  int64_t* at = indices->data<int64_t>();
  int64_t widest = 0;
  for (int64_t row = 0; row < crosses.num_rows(); ++row) {
    widest = std::max(widest, crosses.Count(row));
    for (int64_t i = 0; i < crosses.Count(row); ++i) {
      *at++ = row;
      *at++ = i;
    }
  }
  crosses.Write(options, values);
  return SetShapeOutput(ctx, 2, {crosses.num_rows(), widest});
}

class SparseCrossKernel : public Kernel {
 public:
  explicit SparseCrossKernel(KernelInit& init) {
    init.Attr("hashed_output", &options_.hashed);
    init.Attr("num_buckets", &options_.num_buckets);
    init.Attr("hash_key", &options_.hash_key);
    init.Attr("N", &num_sparse_);
    options_.with_key = true;
    if (options_.hashed != (init.output_type(1) == DType::kInt64)) {
      init.Fail(InvalidArgument("out_type must be int64 with hashed_output and string without"));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const auto sparse = static_cast<int>(num_sparse_);
    MR_ASSIGN_OR_RETURN(const FeatureCrosses crosses, SparseCrossInput(ctx, sparse, ctx.num_inputs() - 3 * sparse));
    return GiveSparseCrosses(ctx, crosses, options_);
  }

 private:
  CrossOptions options_;
  int64_t num_sparse_ = 0;
};

class SparseCrossV2Kernel : public Kernel {
 public:
  explicit SparseCrossV2Kernel(KernelInit& init) { init.Attr("N", &num_sparse_); }
  Status Compute(KernelContext& ctx) override {
    const auto sparse = static_cast<int>(num_sparse_);
    const int last = ctx.num_inputs() - 1;
    const Tensor& separator = ctx.input(last);
    if (separator.rank() != 0) {
      return InvalidArgument("Input separator should be a scalar. Received: ", separator.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const FeatureCrosses crosses, SparseCrossInput(ctx, sparse, last - 3 * sparse));
    return GiveSparseCrosses(ctx, crosses, {.separator = *separator.data<std::string>()});
  }

 private:
  int64_t num_sparse_ = 0;
};

class SparseCrossHashedKernel : public Kernel {
 public:
  explicit SparseCrossHashedKernel(KernelInit& init) { init.Attr("N", &num_sparse_); }
  Status Compute(KernelContext& ctx) override {
    const auto sparse = static_cast<int>(num_sparse_);
    const int first = ctx.num_inputs() - 3;
    const Tensor &buckets = ctx.input(first), &strong = ctx.input(first + 1), &salt = ctx.input(first + 2);
    if (buckets.num_elements() != 1) return InvalidArgument("num_buckets must be a scalar");
    if (strong.num_elements() != 1) return InvalidArgument("strong_hash must be a scalar");
    if (salt.num_elements() != 2) {
      return InvalidArgument("Input \"salt\" must have length 2 but has length ", salt.num_elements());
    }
    MR_ASSIGN_OR_RETURN(const FeatureCrosses crosses, SparseCrossInput(ctx, sparse, first - 3 * sparse));
    return GiveSparseCrosses(ctx, crosses,
                             {.hashed = true,
                              .num_buckets = buckets.data<int64_t>()[0],
                              .salt = strong.data<bool>()[0] ? salt.data<int64_t>() : nullptr,
                              .hash_sparse_ints = true});
  }

 private:
  int64_t num_sparse_ = 0;
};

class RaggedCrossKernel : public Kernel {
 public:
  explicit RaggedCrossKernel(KernelInit& init) {
    init.Attr("input_order", &order_);
    init.Attr("hashed_output", &options_.hashed);
    init.Attr("num_buckets", &options_.num_buckets);
    init.Attr("hash_key", &options_.hash_key);
    init.Attr("Nsparse", &num_sparse_);
    options_.with_key = true;
    if (options_.hashed != (init.output_type(0) == DType::kInt64)) {
      init.Fail(InvalidArgument("out_values_type must be int64 with hashed_output and string without"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(std::vector<FeatureColumn> columns, Columns(ctx));
    MR_ASSIGN_OR_RETURN(const FeatureCrosses crosses, FeatureCrosses::Make(std::move(columns)));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(0, Shape({crosses.total()})));
    MR_ASSIGN_OR_RETURN(Tensor * splits, ctx.AllocateOutput(1, Shape({crosses.num_rows() + 1})));
    crosses.Write(options_, values);
    for (int64_t row = 0; row <= crosses.num_rows(); ++row) {
      if (splits->dtype() == DType::kInt64) {
        splits->data<int64_t>()[row] = crosses.Start(row);
      } else {
        splits->data<int32_t>()[row] = static_cast<int32_t>(crosses.Start(row));
      }
    }
    return absl::OkStatus();
  }

 private:
  // In the order of `input_order`: R(agged), D(ense) and S(parse).
  StatusOr<std::vector<FeatureColumn>> Columns(const KernelContext& ctx) const {
    const auto sparse = static_cast<int>(num_sparse_);
    const auto ragged = static_cast<int>(std::count(order_.begin(), order_.end(), 'R'));
    const auto dense = static_cast<int>(std::count(order_.begin(), order_.end(), 'D'));
    if (ctx.num_inputs() != 2 * ragged + 3 * sparse + dense ||
        static_cast<int>(order_.size()) != ragged + sparse + dense) {
      return InvalidArgument("input_order '", order_, "' does not match the inputs");
    }
    const int first_sparse = 2 * ragged, first_dense = first_sparse + 3 * sparse;
    int next_ragged = 0, next_sparse = 0, next_dense = 0;
    std::vector<FeatureColumn> columns;
    for (const char kind : order_) {
      StatusOr<FeatureColumn> column = InvalidArgument("input_order '", order_, "' has letters other than R, S and D");
      if (kind == 'R') {
        column = FeatureColumn::FromRagged(ctx.input(next_ragged), ctx.input(ragged + next_ragged));
        ++next_ragged;
      } else if (kind == 'S' && next_sparse < sparse) {
        const int i = first_sparse + next_sparse++;
        column = FeatureColumn::FromSparse(ctx.input(i), ctx.input(i + sparse), ctx.input(i + 2 * sparse));
      } else if (kind == 'D') {
        column = FeatureColumn::FromDense(ctx.input(first_dense + next_dense++));
      }
      MR_RETURN_IF_ERROR(column.status());
      columns.push_back(*std::move(column));
    }
    return columns;
  }

  CrossOptions options_;
  std::string order_;
  int64_t num_sparse_ = 0;
};

Status SparseCrossShape(ShapeContext& c) {
  SetSparseOutput(c, 0, PartialShape::kUnknown, 2);
  return absl::OkStatus();
}

Status RaggedCrossShape(ShapeContext& c) {
  c.set_output(0, PartialShape({-1}));
  c.set_output(1, PartialShape({-1}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(SparseCross)
    .Input("indices: N * int64")
    .Input("values: sparse_types")
    .Input("shapes: N * int64")
    .Input("dense_inputs: dense_types")
    .Output("output_indices: int64")
    .Output("output_values: out_type")
    .Output("output_shape: int64")
    .Attr("N: int >= 0")
    .Attr("hashed_output: bool")
    .Attr("num_buckets: int >= 0")
    .Attr("hash_key: int")
    .Attr("sparse_types: list({int64, string}) >= 0")
    .Attr("dense_types: list({int64, string}) >= 0")
    .Attr("out_type: {int64, string}")
    .Attr("internal_type: {int64, string}")
    .Shape(SparseCrossShape)
    .NotDifferentiable()
    .Summary("Crosses of features, as strings or as hashes.");
MILLRACE_OP(SparseCrossV2)
    .Input("indices: N * int64")
    .Input("values: sparse_types")
    .Input("shapes: N * int64")
    .Input("dense_inputs: dense_types")
    .Input("sep: string")
    .Output("output_indices: int64")
    .Output("output_values: string")
    .Output("output_shape: int64")
    .Attr("N: int >= 0")
    .Attr("sparse_types: list({int64, string}) >= 0")
    .Attr("dense_types: list({int64, string}) >= 0")
    .Shape(SparseCrossShape)
    .NotDifferentiable()
    .Summary("Crosses of features, as strings with a separator between them.");
MILLRACE_OP(SparseCrossHashed)
    .Input("indices: N * int64")
    .Input("values: sparse_types")
    .Input("shapes: N * int64")
    .Input("dense_inputs: dense_types")
    .Input("num_buckets: int64")
    .Input("strong_hash: bool")
    .Input("salt: int64")
    .Output("output_indices: int64")
    .Output("output_values: int64")
    .Output("output_shape: int64")
    .Attr("N: int >= 0")
    .Attr("sparse_types: list({int64, string}) >= 0")
    .Attr("dense_types: list({int64, string}) >= 0")
    .Shape(SparseCrossShape)
    .NotDifferentiable()
    .Summary("Crosses of features, as hashes, with a keyed hash if wanted.");
MILLRACE_OP(RaggedCross)
    .Input("ragged_values: ragged_values_types")
    .Input("ragged_row_splits: ragged_splits_types")
    .Input("sparse_indices: Nsparse * int64")
    .Input("sparse_values: sparse_values_types")
    .Input("sparse_shape: Nsparse * int64")
    .Input("dense_inputs: dense_types")
    .Output("output_values: out_values_type")
    .Output("output_row_splits: out_row_splits_type")
    .Attr("Nsparse: int >= 0")
    .Attr("input_order: string")
    .Attr("hashed_output: bool")
    .Attr("num_buckets: int >= 0")
    .Attr("hash_key: int")
    .Attr("ragged_values_types: list({int64, string}) >= 0")
    .Attr("ragged_splits_types: list({int32, int64}) >= 0")
    .Attr("sparse_values_types: list({int64, string}) >= 0")
    .Attr("dense_types: list({int64, string}) >= 0")
    .Attr("out_values_type: {int64, string}")
    .Attr("out_row_splits_type: {int32, int64}")
    .Shape(RaggedCrossShape)
    .NotDifferentiable()
    .Summary("Crosses of features of ragged, sparse and dense columns, as a ragged tensor.");
MILLRACE_KERNEL(SparseCross, kCpu, SparseCrossKernel);
MILLRACE_KERNEL(SparseCrossV2, kCpu, SparseCrossV2Kernel);
MILLRACE_KERNEL(SparseCrossHashed, kCpu, SparseCrossHashedKernel);
MILLRACE_KERNEL(RaggedCross, kCpu, RaggedCrossKernel);

}  // namespace millrace::sparse
