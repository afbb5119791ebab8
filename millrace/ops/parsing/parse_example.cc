// ParseExample, ParseExampleV2 and ParseSingleExample: serialized Examples as tensors.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/parsing/example_columns.h"
#include "millrace/ops/parsing/output_shapes.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Common to the three ops: attrs, and the order of outputs.
class ParseExampleBase : public Kernel {
 public:
  explicit ParseExampleBase(KernelInit& init) {
    init.Attr("sparse_types", &sparse_types_);
    init.Attr("Tdense", &dense_types_);
    init.Attr("dense_shapes", &dense_shapes_);
    init.Fail(CheckDenseShapes(dense_shapes_));
    if (dense_types_.size() != dense_shapes_.size()) {
      init.Fail(InvalidArgument("len(dense_keys) != len(dense_shapes): ", dense_types_.size(), " and ",
                                dense_shapes_.size()));
    }
  }

 protected:
  // Checks that there are as many keys as types.
  static Status CheckCount(const char* what, size_t keys, size_t types) {
    if (keys == types) return absl::OkStatus();
    return InvalidArgument("Expected len(", what, "_keys) == len(", what, "_types) but got: ", keys, " vs. ", types);
  }
  Status AddSparse(absl::Span<const std::string> keys, ExampleColumns* columns) const {
    MR_RETURN_IF_ERROR(CheckCount("sparse", keys.size(), sparse_types_.size()));
    for (size_t i = 0; i < keys.size(); ++i) columns->sparse.push_back({keys[i], sparse_types_[i]});
    return absl::OkStatus();
  }
  // The defaults are inputs from `first_default` on.
  Status AddDense(const KernelContext& ctx, absl::Span<const std::string> keys, int first_default,
                  ExampleColumns* columns) const {
    MR_RETURN_IF_ERROR(CheckCount("dense", keys.size(), dense_types_.size()));
    for (size_t i = 0; i < keys.size(); ++i) {
      columns->dense.push_back({.key = keys[i],
                                .dtype = dense_types_[i],
                                .shape = dense_shapes_[i],
                                .default_value = ctx.input(first_default + static_cast<int>(i))});
    }
    return columns->CheckDefaults();
  }
  static void SetOutputs(KernelContext& ctx, ParsedColumns parsed) {
    int at = 0;
    for (auto* tensors : {&parsed.sparse_indices, &parsed.sparse_values, &parsed.sparse_shapes, &parsed.dense_values,
                          &parsed.ragged_values, &parsed.ragged_splits}) {
      for (Tensor& tensor : *tensors) ctx.SetOutput(at++, std::move(tensor));
    }
  }
  static Status CheckNames(const Tensor& serialized, const Tensor& names) {
    if (names.num_elements() == 0 || names.shape() == serialized.shape()) return absl::OkStatus();
    return InvalidArgument("Expected names have the same shape as serialized: name.shape=", names.shape().ToString(),
                           ", serialized.shape=", serialized.shape().ToString());
  }
  static StatusOr<absl::Span<const std::string>> KeyVector(const KernelContext& ctx, int i, const char* name) {
    if (ctx.input(i).rank() != 1) {
      return InvalidArgument("Expected ", name, " to be a vector, got shape: ", ctx.input(i).shape().ToString());
    }
    return ctx.input(i).flat<std::string>();
  }

  std::vector<DType> sparse_types_, dense_types_;
  std::vector<PartialShape> dense_shapes_;
};

class ParseExampleKernel : public ParseExampleBase {
 public:
  explicit ParseExampleKernel(KernelInit& init) : ParseExampleBase(init) {
    init.Attr("Nsparse", &num_sparse_);
    init.Attr("Ndense", &num_dense_);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &serialized = ctx.input(0), &names = ctx.input(1);
    if (serialized.rank() != 1) {
      return InvalidArgument("Expected serialized to be a vector, got shape: ", serialized.shape().ToString());
    }
    MR_RETURN_IF_ERROR(CheckNames(serialized, names));
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> sparse_keys, Keys(ctx, 2, num_sparse_, "sparse_keys"));
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> dense_keys,
                        Keys(ctx, 2 + num_sparse_, num_dense_, "dense_keys"));
    ExampleColumns columns;
    MR_RETURN_IF_ERROR(AddSparse(sparse_keys, &columns));
    MR_RETURN_IF_ERROR(AddDense(ctx, dense_keys, 2 + num_sparse_ + num_dense_, &columns));
    MR_ASSIGN_OR_RETURN(ParsedColumns parsed,
                        ParseExamples(ctx, {serialized.flat<std::string>(), names.flat<std::string>()}, columns));
    SetOutputs(ctx, std::move(parsed));
    return absl::OkStatus();
  }

 private:
  static StatusOr<std::vector<std::string>> Keys(const KernelContext& ctx, int first, int n, const char* name) {
    std::vector<std::string> keys;
    for (int i = 0; i < n; ++i) {
      const Tensor& key = ctx.input(first + i);
      if (key.rank() != 0) {
        return InvalidArgument("Expected ", name, "[", i, "] to be a scalar, got shape: ", key.shape().ToString());
      }
      keys.push_back(key.scalar<std::string>());
    }
    return keys;
  }

  int32_t num_sparse_ = 0, num_dense_ = 0;
};

class ParseExampleV2Kernel : public ParseExampleBase {
 public:
  explicit ParseExampleV2Kernel(KernelInit& init) : ParseExampleBase(init) {
    int64_t num_sparse = 0;
    init.Attr("num_sparse", &num_sparse);
    init.Attr("ragged_value_types", &ragged_types_);
    init.Attr("ragged_split_types", &split_types_);
    if (num_sparse != static_cast<int64_t>(sparse_types_.size())) {
      init.Fail(InvalidArgument("num_sparse (", num_sparse, ") must match the number of sparse_types (",
                                sparse_types_.size(), ")"));
    }
    if (ragged_types_.size() != split_types_.size()) {
      init.Fail(InvalidArgument("len(ragged_value_types) != len(ragged_split_types): ", ragged_types_.size(), " and ",
                                split_types_.size()));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &serialized = ctx.input(0), &names = ctx.input(1);
    if (serialized.rank() > 1) {
      return InvalidArgument("Expected serialized to be a scalar or vector, got shape: ",
                             serialized.shape().ToString());
    }
    MR_RETURN_IF_ERROR(CheckNames(serialized, names));
    ExampleColumns columns;
    MR_ASSIGN_OR_RETURN(const auto sparse_keys, KeyVector(ctx, 2, "sparse_keys"));
    MR_ASSIGN_OR_RETURN(const auto dense_keys, KeyVector(ctx, 3, "dense_keys"));
    MR_ASSIGN_OR_RETURN(const auto ragged_keys, KeyVector(ctx, 4, "ragged_keys"));
    MR_RETURN_IF_ERROR(AddSparse(sparse_keys, &columns));
    MR_RETURN_IF_ERROR(AddDense(ctx, dense_keys, 5, &columns));
    MR_RETURN_IF_ERROR(CheckCount("ragged", ragged_keys.size(), ragged_types_.size()));
    for (size_t i = 0; i < ragged_keys.size(); ++i) {
      columns.ragged.push_back({ragged_keys[i], ragged_types_[i], split_types_[i]});
    }
    const SerializedExamples examples{serialized.flat<std::string>(), names.flat<std::string>(),
                                      serialized.rank() == 1};
    MR_ASSIGN_OR_RETURN(ParsedColumns parsed, ParseExamples(ctx, examples, columns));
    SetOutputs(ctx, std::move(parsed));
    return absl::OkStatus();
  }

 private:
  std::vector<DType> ragged_types_, split_types_;
};

class ParseSingleExampleKernel : public ParseExampleBase {
 public:
  explicit ParseSingleExampleKernel(KernelInit& init) : ParseExampleBase(init) {
    int64_t num_sparse = 0;
    init.Attr("num_sparse", &num_sparse);
    init.Attr("sparse_keys", &sparse_keys_);
    init.Attr("dense_keys", &dense_keys_);
    if (num_sparse != static_cast<int64_t>(sparse_keys_.size())) {
      init.Fail(InvalidArgument("num_sparse (", num_sparse, ") must match the size of sparse_keys (",
                                sparse_keys_.size(), ")"));
    }
    init.Fail(CheckCount("sparse", sparse_keys_.size(), sparse_types_.size()));
    init.Fail(CheckCount("dense", dense_keys_.size(), dense_types_.size()));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& serialized = ctx.input(0);
    if (serialized.rank() != 0) {
      return InvalidArgument("Expected serialized to be a scalar, got shape: ", serialized.shape().ToString());
    }
    ExampleColumns columns;
    MR_RETURN_IF_ERROR(AddSparse(sparse_keys_, &columns));
    MR_RETURN_IF_ERROR(AddDense(ctx, dense_keys_, 1, &columns));
    MR_ASSIGN_OR_RETURN(ParsedColumns parsed, ParseExamples(ctx, {serialized.flat<std::string>(), {}, false}, columns));
    SetOutputs(ctx, std::move(parsed));
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> sparse_keys_, dense_keys_;
};

Status ParseExampleShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(0, 1));
  OutputShapes out(c, serialized);
  return out.AddExample({.sparse_types = "sparse_types", .dense_shapes = "dense_shapes"});
}

Status ParseExampleV2Shape(ShapeContext& c) {
  OutputShapes out(c, c.input(0));
  return out.AddExample(
      {.sparse_types = "sparse_types", .dense_shapes = "dense_shapes", .ragged_types = "ragged_value_types"});
}

Status ParseSingleExampleShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape serialized, c.WithRank(0, 0));
  OutputShapes out(c, serialized);
  return out.AddExample({.sparse_types = "sparse_types", .dense_shapes = "dense_shapes"});
}

MILLRACE_OP(ParseExample)
    .Input("serialized: string")
    .Input("names: string")
    .Input("sparse_keys: Nsparse * string")
    .Input("dense_keys: Ndense * string")
    .Input("dense_defaults: Tdense")
    .Output("sparse_indices: Nsparse * int64")
    .Output("sparse_values: sparse_types")
    .Output("sparse_shapes: Nsparse * int64")
    .Output("dense_values: Tdense")
    .Attr("Nsparse: int >= 0")
    .Attr("Ndense: int >= 0")
    .Attr("sparse_types: list({float, int64, string}) >= 0")
    .Attr("Tdense: list({float, int64, string}) >= 0")
    .Attr("dense_shapes: list(shape) >= 0")
    .Shape(ParseExampleShape)
    .NotDifferentiable()
    .Summary("Parses a batch of serialized Examples to sparse and dense tensors.");
MILLRACE_OP(ParseExampleV2)
    .Input("serialized: string")
    .Input("names: string")
    .Input("sparse_keys: string")
    .Input("dense_keys: string")
    .Input("ragged_keys: string")
    .Input("dense_defaults: Tdense")
    .Output("sparse_indices: num_sparse * int64")
    .Output("sparse_values: sparse_types")
    .Output("sparse_shapes: num_sparse * int64")
    .Output("dense_values: Tdense")
    .Output("ragged_values: ragged_value_types")
    .Output("ragged_row_splits: ragged_split_types")
    .Attr("Tdense: list({float, int64, string}) >= 0")
    .Attr("num_sparse: int >= 0")
    .Attr("sparse_types: list({float, int64, string}) >= 0")
    .Attr("ragged_value_types: list({float, int64, string}) >= 0")
    .Attr("ragged_split_types: list({int32, int64}) >= 0")
    .Attr("dense_shapes: list(shape) >= 0")
    .Shape(ParseExampleV2Shape)
    .NotDifferentiable()
    .Summary("Parses one or a batch of serialized Examples to sparse, dense and ragged tensors.");
MILLRACE_OP(ParseSingleExample)
    .Input("serialized: string")
    .Input("dense_defaults: Tdense")
    .Output("sparse_indices: num_sparse * int64")
    .Output("sparse_values: sparse_types")
    .Output("sparse_shapes: num_sparse * int64")
    .Output("dense_values: Tdense")
    .Attr("num_sparse: int >= 0")
    .Attr("sparse_keys: list(string) >= 0")
    .Attr("dense_keys: list(string) >= 0")
    .Attr("sparse_types: list({float, int64, string}) >= 0")
    .Attr("Tdense: list({float, int64, string}) >= 0")
    .Attr("dense_shapes: list(shape) >= 0")
    .Shape(ParseSingleExampleShape)
    .NotDifferentiable()
    .Summary("Parses one serialized Example to sparse and dense tensors.");
MILLRACE_KERNEL(ParseExample, kCpu, ParseExampleKernel);
MILLRACE_KERNEL(ParseExampleV2, kCpu, ParseExampleV2Kernel);
MILLRACE_KERNEL(ParseSingleExample, kCpu, ParseSingleExampleKernel);

}  // namespace
}  // namespace millrace
