// ParseSequenceExample, its V2 and ParseSingleSequenceExample: serialized SequenceExamples as tensors.
#include <set>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/parsing/output_shapes.h"
#include "millrace/ops/parsing/sequence_columns.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using Keys = std::vector<std::string>;

Status CheckCount(const char* what, size_t keys, size_t types) {
  if (keys == types) return absl::OkStatus();
  return InvalidArgument("there are ", keys, " ", what, "_keys, but ", types, " types or shapes for them");
}

// The attrs that all three have, and the columns they describe once the keys are known.
class SequenceKernel : public Kernel {
 public:
  explicit SequenceKernel(KernelInit& init) {
    init.Attr("context_sparse_types", &context_sparse_types_);
    init.Attr("Tcontext_dense", &context_dense_types_);
    init.Attr("context_dense_shapes", &context_dense_shapes_);
    init.Attr("feature_list_sparse_types", &list_sparse_types_);
    init.Attr("feature_list_dense_types", &list_dense_types_);
    init.Attr("feature_list_dense_shapes", &list_dense_shapes_);
    init.Fail(CheckDenseShapes(context_dense_shapes_, /*fully=*/true));
    init.Fail(CheckDenseShapes(list_dense_shapes_, /*fully=*/true));
    init.Fail(CheckCount("context_dense", context_dense_types_.size(), context_dense_shapes_.size()));
    init.Fail(CheckCount("feature_list_dense", list_dense_types_.size(), list_dense_shapes_.size()));
  }

 protected:
  struct Columns {
    ExampleColumns context;
    ListColumns lists;
  };

  // Adds the sparse and dense columns; the context's defaults are inputs from `first_default` on.
  Status AddColumns(const KernelContext& ctx, const Keys& context_sparse, const Keys& context_dense, int first_default,
                    const Keys& list_sparse, const Keys& list_dense, const std::vector<bool>& may_be_missing,
                    Columns* out) const {
    MR_RETURN_IF_ERROR(CheckCount("context_sparse", context_sparse.size(), context_sparse_types_.size()));
    MR_RETURN_IF_ERROR(CheckCount("context_dense", context_dense.size(), context_dense_types_.size()));
    MR_RETURN_IF_ERROR(CheckCount("feature_list_sparse", list_sparse.size(), list_sparse_types_.size()));
    MR_RETURN_IF_ERROR(CheckCount("feature_list_dense", list_dense.size(), list_dense_types_.size()));
    for (size_t i = 0; i < context_sparse.size(); ++i) {
      out->context.sparse.push_back({context_sparse[i], context_sparse_types_[i]});
    }
    for (size_t i = 0; i < context_dense.size(); ++i) {
      out->context.dense.push_back({.key = context_dense[i],
                                    .dtype = context_dense_types_[i],
                                    .shape = context_dense_shapes_[i],
                                    .default_value = ctx.input(first_default + static_cast<int>(i))});
    }
    for (size_t i = 0; i < list_sparse.size(); ++i)
      out->lists.sparse.push_back({list_sparse[i], list_sparse_types_[i]});
    for (size_t i = 0; i < list_dense.size(); ++i) {
      out->lists.dense.push_back({.key = list_dense[i],
                                  .dtype = list_dense_types_[i],
                                  .shape = list_dense_shapes_[i].AsShape(),
                                  .may_be_missing = may_be_missing[i]});
    }
    return out->context.CheckDefaults();
  }

  static Status Run(KernelContext& ctx, const SerializedExamples& examples, const Columns& columns, bool with_lengths) {
    for (const DenseColumn& column : columns.context.dense) {
      // Unlike ParseExample, these ops require it even for an empty batch.
      if (examples.bytes.empty() && column.default_value.num_elements() == 0) {
        return InvalidArgument("Feature: ", column.key, " (data type: ", column.dtype,
                               ") is required but could not be found.");
      }
    }
    MR_ASSIGN_OR_RETURN(ParsedColumns context, ParseExamples(ctx, examples, columns.context));
    MR_ASSIGN_OR_RETURN(ParsedLists lists, ParseFeatureLists(ctx, examples, columns.lists));
    for (size_t i = 0; i < context.ragged_splits.size() && !examples.batched; ++i) {
      context.ragged_splits[i] = ScalarSplit(context.ragged_splits[i].dtype(), context.ragged_values[i].num_elements());
    }
    for (size_t i = 0; i < lists.ragged_outer_splits.size() && !examples.batched; ++i) {
      lists.ragged_outer_splits[i] =
          ScalarSplit(lists.ragged_outer_splits[i].dtype(), lists.ragged_inner_splits[i].num_elements() - 1);
    }
    if (!with_lengths) lists.dense_lengths.clear();
    int at = 0;
    for (auto* tensors : {&context.sparse_indices, &context.sparse_values, &context.sparse_shapes,
                          &context.dense_values, &context.ragged_values, &context.ragged_splits, &lists.sparse_indices,
                          &lists.sparse_values, &lists.sparse_shapes, &lists.dense_values, &lists.dense_lengths,
                          &lists.ragged_values, &lists.ragged_outer_splits, &lists.ragged_inner_splits}) {
      for (Tensor& tensor : *tensors) ctx.SetOutput(at++, std::move(tensor));
    }
    return absl::OkStatus();
  }

  // The splits of a single example: its number of rows.
  static Tensor ScalarSplit(DType dtype, int64_t rows) {
    return dtype == DType::kInt32 ? Tensor::Scalar(static_cast<int32_t>(rows)) : Tensor::Scalar(rows);
  }

  static StatusOr<SerializedExamples> Examples(const Tensor& serialized, const Tensor& names) {
    if (serialized.rank() > 1) {
      return InvalidArgument("Expected serialized to be a scalar or vector, got shape: ",
                             serialized.shape().ToString());
    }
    if (names.num_elements() > 0 && names.num_elements() != serialized.num_elements()) {
      return InvalidArgument("debug_name must be empty or have as many elements as serialized, but has shape ",
                             names.shape().ToString());
    }
    return SerializedExamples{serialized.flat<std::string>(), names.flat<std::string>(), serialized.rank() == 1};
  }

  // Checks that attr `attr` equals `n`, because outputs are numbered by both.
  static void CheckNumber(KernelInit& init, const char* attr, size_t n) {
    int64_t number = 0;
    init.Attr(attr, &number);
    if (number != static_cast<int64_t>(n)) {
      init.Fail(InvalidArgument("attr ", attr, " is ", number, ", but there are ", n, " such columns"));
    }
  }

  static std::vector<bool> MissingAllowed(const Keys& keys, const std::set<std::string>& allowed) {
    std::vector<bool> may_be_missing;
    for (const std::string& key : keys) may_be_missing.push_back(allowed.count(key) > 0);
    return may_be_missing;
  }

  std::vector<DType> context_sparse_types_, context_dense_types_, list_sparse_types_, list_dense_types_;
  std::vector<PartialShape> context_dense_shapes_, list_dense_shapes_;
};

// Keys are attrs.
class ParseSequenceExampleKernel : public SequenceKernel {
 public:
  explicit ParseSequenceExampleKernel(KernelInit& init) : SequenceKernel(init) {
    Keys missing;
    init.Attr("feature_list_dense_missing_assumed_empty", &missing);
    init.Attr("context_sparse_keys", &context_sparse_);
    init.Attr("context_dense_keys", &context_dense_);
    init.Attr("feature_list_sparse_keys", &list_sparse_);
    init.Attr("feature_list_dense_keys", &list_dense_);
    may_be_missing_ = MissingAllowed(list_dense_, {missing.begin(), missing.end()});
    CheckNumber(init, "Ncontext_sparse", context_sparse_.size());
    CheckNumber(init, "Ncontext_dense", context_dense_.size());
    CheckNumber(init, "Nfeature_list_sparse", list_sparse_.size());
    CheckNumber(init, "Nfeature_list_dense", list_dense_.size());
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SerializedExamples examples, Examples(ctx.input(0), ctx.input(1)));
    Columns columns;
    MR_RETURN_IF_ERROR(
        AddColumns(ctx, context_sparse_, context_dense_, 2, list_sparse_, list_dense_, may_be_missing_, &columns));
    return Run(ctx, examples, columns, /*with_lengths=*/true);
  }

 private:
  Keys context_sparse_, context_dense_, list_sparse_, list_dense_;
  std::vector<bool> may_be_missing_;
};

// Keys are vectors, and there are ragged columns.
class ParseSequenceExampleV2Kernel : public SequenceKernel {
 public:
  explicit ParseSequenceExampleV2Kernel(KernelInit& init) : SequenceKernel(init) {
    init.Attr("context_ragged_value_types", &context_ragged_types_);
    init.Attr("context_ragged_split_types", &context_split_types_);
    init.Attr("feature_list_ragged_value_types", &list_ragged_types_);
    init.Attr("feature_list_ragged_split_types", &list_split_types_);
    if (context_ragged_types_.size() != context_split_types_.size() ||
        list_ragged_types_.size() != list_split_types_.size()) {
      init.Fail(InvalidArgument("ragged columns need as many types of splits as of values"));
    }
    CheckNumber(init, "Ncontext_sparse", context_sparse_types_.size());
    CheckNumber(init, "Nfeature_list_sparse", list_sparse_types_.size());
    CheckNumber(init, "Nfeature_list_dense", list_dense_types_.size());
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const SerializedExamples examples, Examples(ctx.input(0), ctx.input(1)));
    const auto keys = [&](int i) {
      const auto flat = ctx.input(i).flat<std::string>();
      return Keys(flat.begin(), flat.end());
    };
    const Keys context_sparse = keys(2), context_dense = keys(3), context_ragged = keys(4);
    const Keys list_sparse = keys(5), list_dense = keys(6), list_ragged = keys(7);
    const auto missing = ctx.input(8).flat<bool>();
    if (missing.size() != list_dense.size()) {
      return InvalidArgument("feature_list_dense_missing_assumed_empty has ", missing.size(), " elements for ",
                             list_dense.size(), " dense feature lists");
    }
    MR_RETURN_IF_ERROR(CheckCount("context_ragged", context_ragged.size(), context_ragged_types_.size()));
    MR_RETURN_IF_ERROR(CheckCount("feature_list_ragged", list_ragged.size(), list_ragged_types_.size()));
    MR_RETURN_IF_ERROR(CheckDistinct("Context", context_ragged, context_sparse, context_dense));
    MR_RETURN_IF_ERROR(CheckDistinct("Sequence", list_ragged, list_sparse, list_dense));
    Columns columns;
    MR_RETURN_IF_ERROR(AddColumns(ctx, context_sparse, context_dense, 9, list_sparse, list_dense,
                                  std::vector<bool>(missing.begin(), missing.end()), &columns));
    for (size_t i = 0; i < context_ragged.size(); ++i) {
      columns.context.ragged.push_back({context_ragged[i], context_ragged_types_[i], context_split_types_[i]});
    }
    for (size_t i = 0; i < list_ragged.size(); ++i) {
      columns.lists.ragged.push_back({list_ragged[i], list_ragged_types_[i], list_split_types_[i]});
    }
    return Run(ctx, examples, columns, /*with_lengths=*/true);
  }

 private:
  static Status CheckDistinct(const char* what, const Keys& ragged, const Keys& sparse, const Keys& dense) {
    const std::set<std::string> seen(ragged.begin(), ragged.end());
    for (const std::string& key : sparse) {
      if (seen.count(key) > 0) return InvalidArgument(what, " feature ", key, " cannot be both ragged and sparse");
    }
    for (const std::string& key : dense) {
      if (seen.count(key) > 0) return InvalidArgument(what, " feature ", key, " cannot be both ragged and dense");
    }
    return absl::OkStatus();
  }

  std::vector<DType> context_ragged_types_, context_split_types_, list_ragged_types_, list_split_types_;
};

// Keys are scalars, one input each, and there is one example.
class ParseSingleSequenceExampleKernel : public SequenceKernel {
 public:
  explicit ParseSingleSequenceExampleKernel(KernelInit& init) : SequenceKernel(init) {
    init.Attr("Ncontext_sparse", &n_[0]);
    init.Attr("Ncontext_dense", &n_[1]);
    init.Attr("Nfeature_list_sparse", &n_[2]);
    init.Attr("Nfeature_list_dense", &n_[3]);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &serialized = ctx.input(0), &missing = ctx.input(1), &name = ctx.input(ctx.num_inputs() - 1);
    if (serialized.rank() != 0) {
      return InvalidArgument("Expected serialized to be a scalar, got shape: ", serialized.shape().ToString());
    }
    if (missing.rank() != 1) {
      return InvalidArgument("Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: ",
                             missing.shape().ToString());
    }
    if (name.rank() != 0) {
      return InvalidArgument("Expected debug_name to be a scalar, got shape: ", name.shape().ToString());
    }
    static constexpr const char* kNames[] = {"context_sparse_keys", "context_dense_keys", "feature_list_sparse_keys",
                                             "feature_list_dense_keys"};
    Keys keys[4];
    int at = 2;
    for (int kind = 0; kind < 4; ++kind) {
      for (int i = 0; i < n_[kind]; ++i, ++at) {
        if (ctx.input(at).rank() != 0) {
          return InvalidArgument("Expected ", kNames[kind], "[", i,
                                 "] to be a scalar, got shape: ", ctx.input(at).shape().ToString());
        }
        keys[kind].push_back(ctx.input(at).scalar<std::string>());
      }
    }
    const auto allowed = missing.flat<std::string>();
    Columns columns;
    MR_RETURN_IF_ERROR(AddColumns(ctx, keys[0], keys[1], at, keys[2], keys[3],
                                  MissingAllowed(keys[3], {allowed.begin(), allowed.end()}), &columns));
    return Run(ctx, {serialized.flat<std::string>(), name.flat<std::string>(), false}, columns, /*with_lengths=*/false);
  }

 private:
  int32_t n_[4] = {};
};

constexpr OutputShapes::Attrs kContext = {.sparse_types = "context_sparse_types",
                                          .dense_shapes = "context_dense_shapes",
                                          .fully_defined = true,
                                          .scalar_splits = true};
constexpr OutputShapes::Attrs kLists = {.sparse_types = "feature_list_sparse_types",
                                        .dense_shapes = "feature_list_dense_shapes",
                                        .fully_defined = true,
                                        .lengths = true,
                                        .scalar_splits = true};

Status ParseSequenceExampleShape(ShapeContext& c) {
  OutputShapes out(c, c.input(0));
  MR_RETURN_IF_ERROR(out.AddExample(kContext));
  return out.AddFeatureLists(kLists);
}

Status ParseSequenceExampleV2Shape(ShapeContext& c) {
  OutputShapes out(c, c.input(0));
  OutputShapes::Attrs context = kContext, lists = kLists;
  context.ragged_types = "context_ragged_value_types";
  lists.ragged_types = "feature_list_ragged_value_types";
  MR_RETURN_IF_ERROR(out.AddExample(context));
  return out.AddFeatureLists(lists);
}

Status ParseSingleSequenceExampleShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(0, 0));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  OutputShapes out(c, serialized);
  OutputShapes::Attrs lists = kLists;
  lists.lengths = false;
  MR_RETURN_IF_ERROR(out.AddExample(kContext));
  return out.AddFeatureLists(lists);
}

MILLRACE_OP(ParseSequenceExample)
    .Input("serialized: string")
    .Input("debug_name: string")
    .Input("context_dense_defaults: Tcontext_dense")
    .Output("context_sparse_indices: Ncontext_sparse * int64")
    .Output("context_sparse_values: context_sparse_types")
    .Output("context_sparse_shapes: Ncontext_sparse * int64")
    .Output("context_dense_values: Tcontext_dense")
    .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
    .Output("feature_list_sparse_values: feature_list_sparse_types")
    .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
    .Output("feature_list_dense_values: feature_list_dense_types")
    .Output("feature_list_dense_lengths: Nfeature_list_dense * int64")
    .Attr("feature_list_dense_missing_assumed_empty: list(string) >= 0")
    .Attr("context_sparse_keys: list(string) >= 0")
    .Attr("context_dense_keys: list(string) >= 0")
    .Attr("feature_list_sparse_keys: list(string) >= 0")
    .Attr("feature_list_dense_keys: list(string) >= 0")
    .Attr("Ncontext_sparse: int >= 0 = 0")
    .Attr("Ncontext_dense: int >= 0 = 0")
    .Attr("Nfeature_list_sparse: int >= 0 = 0")
    .Attr("Nfeature_list_dense: int >= 0 = 0")
    .Attr("context_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("Tcontext_dense: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_dense_types: list({float, int64, string}) >= 0 = []")
    .Attr("context_dense_shapes: list(shape) >= 0 = []")
    .Attr("feature_list_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_dense_shapes: list(shape) >= 0 = []")
    .Shape(ParseSequenceExampleShape)
    .NotDifferentiable()
    .Summary("Parses serialized SequenceExamples to sparse and dense tensors.");
MILLRACE_OP(ParseSequenceExampleV2)
    .Input("serialized: string")
    .Input("debug_name: string")
    .Input("context_sparse_keys: string")
    .Input("context_dense_keys: string")
    .Input("context_ragged_keys: string")
    .Input("feature_list_sparse_keys: string")
    .Input("feature_list_dense_keys: string")
    .Input("feature_list_ragged_keys: string")
    .Input("feature_list_dense_missing_assumed_empty: bool")
    .Input("context_dense_defaults: Tcontext_dense")
    .Output("context_sparse_indices: Ncontext_sparse * int64")
    .Output("context_sparse_values: context_sparse_types")
    .Output("context_sparse_shapes: Ncontext_sparse * int64")
    .Output("context_dense_values: Tcontext_dense")
    .Output("context_ragged_values: context_ragged_value_types")
    .Output("context_ragged_row_splits: context_ragged_split_types")
    .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
    .Output("feature_list_sparse_values: feature_list_sparse_types")
    .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
    .Output("feature_list_dense_values: feature_list_dense_types")
    .Output("feature_list_dense_lengths: Nfeature_list_dense * int64")
    .Output("feature_list_ragged_values: feature_list_ragged_value_types")
    .Output("feature_list_ragged_outer_splits: feature_list_ragged_split_types")
    .Output("feature_list_ragged_inner_splits: feature_list_ragged_split_types")
    .Attr("Ncontext_sparse: int >= 0 = 0")
    .Attr("Tcontext_dense: list({float, int64, string}) >= 0 = []")
    .Attr("context_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("context_ragged_value_types: list({float, int64, string}) >= 0 = []")
    .Attr("context_ragged_split_types: list({int32, int64}) >= 0 = []")
    .Attr("context_dense_shapes: list(shape) >= 0 = []")
    .Attr("Nfeature_list_sparse: int >= 0 = 0")
    .Attr("Nfeature_list_dense: int >= 0 = 0")
    .Attr("feature_list_dense_types: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_ragged_split_types: list({int32, int64}) >= 0 = []")
    .Attr("feature_list_dense_shapes: list(shape) >= 0 = []")
    .Shape(ParseSequenceExampleV2Shape)
    .NotDifferentiable()
    .Summary("Parses serialized SequenceExamples to sparse, dense and ragged tensors.");
MILLRACE_OP(ParseSingleSequenceExample)
    .Input("serialized: string")
    .Input("feature_list_dense_missing_assumed_empty: string")
    .Input("context_sparse_keys: Ncontext_sparse * string")
    .Input("context_dense_keys: Ncontext_dense * string")
    .Input("feature_list_sparse_keys: Nfeature_list_sparse * string")
    .Input("feature_list_dense_keys: Nfeature_list_dense * string")
    .Input("context_dense_defaults: Tcontext_dense")
    .Input("debug_name: string")
    .Output("context_sparse_indices: Ncontext_sparse * int64")
    .Output("context_sparse_values: context_sparse_types")
    .Output("context_sparse_shapes: Ncontext_sparse * int64")
    .Output("context_dense_values: Tcontext_dense")
    .Output("feature_list_sparse_indices: Nfeature_list_sparse * int64")
    .Output("feature_list_sparse_values: feature_list_sparse_types")
    .Output("feature_list_sparse_shapes: Nfeature_list_sparse * int64")
    .Output("feature_list_dense_values: feature_list_dense_types")
    .Attr("Ncontext_sparse: int >= 0 = 0")
    .Attr("Ncontext_dense: int >= 0 = 0")
    .Attr("Nfeature_list_sparse: int >= 0 = 0")
    .Attr("Nfeature_list_dense: int >= 0 = 0")
    .Attr("context_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("Tcontext_dense: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_dense_types: list({float, int64, string}) >= 0 = []")
    .Attr("context_dense_shapes: list(shape) >= 0 = []")
    .Attr("feature_list_sparse_types: list({float, int64, string}) >= 0 = []")
    .Attr("feature_list_dense_shapes: list(shape) >= 0 = []")
    .Shape(ParseSingleSequenceExampleShape)
    .NotDifferentiable()
    .Summary("Parses one serialized SequenceExample to sparse and dense tensors.");
MILLRACE_KERNEL(ParseSequenceExample, kCpu, ParseSequenceExampleKernel);
MILLRACE_KERNEL(ParseSequenceExampleV2, kCpu, ParseSequenceExampleV2Kernel);
MILLRACE_KERNEL(ParseSingleSequenceExample, kCpu, ParseSingleSequenceExampleKernel);

}  // namespace
}  // namespace millrace
