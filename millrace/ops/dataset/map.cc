// Dataset ops that apply graph functions: Map, Filter, FlatMap, Interleave and their variants.
#include "millrace/base/affinity.h"
#include "millrace/ops/dataset/captured_function.h"

namespace millrace {
namespace {

using Function = std::shared_ptr<const CapturedFunction>;

// A dataset op with a function, whose captured tensors follow the input dataset.
class FunctionDatasetKernel : public DatasetKernel {
 protected:
  explicit FunctionDatasetKernel(KernelInit& init, const char* attr = "f") {
    init.Attr(attr, &function_);
    std::vector<DType> types;
    init.Attr("Targuments", &types);
    captured_ = static_cast<int>(types.size());
  }
  StatusOr<Function> MakeFunction(KernelContext& ctx, PipelineParts* parts) const {
    return CapturedFunction::Make(ctx, function_, 1, captured_, parts);
  }
  // The first input after the captured ones.
  int after_captured() const { return 1 + captured_; }
  // "f", for messages.
  const std::string& function_name() const { return function_.name(); }

 private:
  pb::NameAttrList function_;
  int captured_ = 0;
};

ElementFn CallOn(Function function) {
  return [function = std::move(function)](std::vector<Tensor>* element) -> Status {
    MR_ASSIGN_OR_RETURN(*element, function->Call(std::move(*element)));
    return absl::OkStatus();
  };
}

// -1 lets the runtime choose.
int64_t CallsOf(int64_t asked) { return asked > 0 ? asked : AllowedCoreCount(); }

class MapDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit MapDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    return input.Map(CallOn(std::move(function)), /*waits=*/true);
  }
};

class ParallelMapDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit ParallelMapDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    MR_ASSIGN_OR_RETURN(const int64_t calls, NumCalls(ctx));
    return input.ParallelMap(CallOn(std::move(function)), CallsOf(calls));
  }

 private:
  StatusOr<int64_t> NumCalls(KernelContext& ctx) const {
    const int at = after_captured();
    int64_t calls;
    if (ctx.input(at).dtype() == DType::kInt32) {
      MR_ASSIGN_OR_RETURN(calls, Scalar<int32_t>(ctx, at, "num_parallel_calls"));
    } else {
      MR_ASSIGN_OR_RETURN(calls, Scalar<int64_t>(ctx, at, "num_parallel_calls"));
    }
    if (calls == 0 || calls < -1) return InvalidArgument("num_parallel_calls must be greater than zero.");
    return calls;
  }
};

class MapAndBatchDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit MapAndBatchDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    const int at = after_captured();
    MR_ASSIGN_OR_RETURN(const int64_t size, Count(ctx, at, "batch_size", 1));
    MR_ASSIGN_OR_RETURN(const int64_t calls, Count(ctx, at + 1, "num_parallel_calls", -1));
    if (calls == 0) return InvalidArgument("num_parallel_calls must be greater than zero.");
    MR_ASSIGN_OR_RETURN(const bool drop_remainder, Scalar<bool>(ctx, at + 2, "drop_remainder"));
    return input.ParallelMap(CallOn(std::move(function)), CallsOf(calls)).Batch(size, drop_remainder);
  }
};

class FilterDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit FilterDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init, "predicate") {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    return input.Filter(
        [function](const std::vector<Tensor>& element) -> StatusOr<bool> {
          MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, function->Call(element));
          if (result.size() != 1 || result[0].dtype() != DType::kBool || result[0].num_elements() != 1) {
            return InvalidArgument("Filter predicate `f` must return a scalar bool.");
          }
          return result[0].scalar<bool>();
        },
        /*waits=*/true);
  }
};

FlatMapFn DatasetOf(Function function) {
  return [function = std::move(function)](const std::vector<Tensor>& element) -> StatusOr<Dataset> {
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, function->Call(element));
    if (result.size() != 1) return InvalidArgument("`f` must return one dataset, not ", result.size(), " tensors");
    MR_ASSIGN_OR_RETURN(const DatasetValue* value, DatasetIn(result[0], "what `f` returns"));
    return value->dataset;
  };
}

class FlatMapDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit FlatMapDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    return input.FlatMap(DatasetOf(std::move(function)));
  }
};

// The parallel form returns the same elements in the same order.
class InterleaveDatasetKernel : public FunctionDatasetKernel {
 public:
  explicit InterleaveDatasetKernel(KernelInit& init) : FunctionDatasetKernel(init) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(Function function, MakeFunction(ctx, parts));
    InterleaveOptions options;
    const int at = after_captured();
    MR_ASSIGN_OR_RETURN(options.cycle_length, Count(ctx, at, "cycle_length", -1));
    if (options.cycle_length == 0) return InvalidArgument("cycle_length must be greater than zero.");
    options.cycle_length = CallsOf(options.cycle_length);
    MR_ASSIGN_OR_RETURN(options.block_length, Count(ctx, at + 1, "block_length", 1));
    return input.Interleave(DatasetOf(std::move(function)), options);
  }
};

MILLRACE_OP(MapDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("use_inter_op_parallelism: bool = true")
    .Attr("preserve_cardinality: bool = false")
    .Attr("force_synchronous: bool = false")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Applies a function to every element.");

MILLRACE_OP(ParallelMapDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("num_parallel_calls: int32")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("use_inter_op_parallelism: bool = true")
    .Attr("sloppy: bool = false")
    .Attr("preserve_cardinality: bool = false")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Applies a function to every element, several in parallel.");

MILLRACE_OP(ParallelMapDatasetV2)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("num_parallel_calls: int64")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("use_inter_op_parallelism: bool = true")
    .Attr("deterministic: string = 'default'")
    .Attr("preserve_cardinality: bool = false")
    .Attr("use_unbounded_threadpool: bool = false")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Applies a function to every element, several in parallel.");

MILLRACE_OP(MapAndBatchDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("batch_size: int64")
    .Input("num_parallel_calls: int64")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("preserve_cardinality: bool = false")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Applies a function to every element and batches the results.");

MILLRACE_OP(FilterDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("predicate: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The elements for which a function returns true.");

MILLRACE_OP(FlatMapDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements to datasets and concatenates them.");

MILLRACE_OP(InterleaveDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("cycle_length: int64")
    .Input("block_length: int64")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements to datasets and interleaves them.");

MILLRACE_OP(ParallelInterleaveDatasetV2)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("cycle_length: int64")
    .Input("block_length: int64")
    .Input("num_parallel_calls: int64")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("sloppy: bool = false")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements to datasets and interleaves them.");

MILLRACE_OP(ParallelInterleaveDatasetV3)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("cycle_length: int64")
    .Input("block_length: int64")
    .Input("num_parallel_calls: int64")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("deterministic: string = 'default'")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements to datasets and interleaves them.");

MILLRACE_OP(ParallelInterleaveDatasetV4)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("cycle_length: int64")
    .Input("block_length: int64")
    .Input("buffer_output_elements: int64")
    .Input("prefetch_input_elements: int64")
    .Input("num_parallel_calls: int64")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("deterministic: string = 'default'")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements to datasets and interleaves them.");

MILLRACE_OP(ParallelFilterDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Input("num_parallel_calls: int64")
    .Output("handle: variant")
    .Attr("predicate: func")
    .Attr("deterministic: string = 'default'")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The elements for which a function returns true.");

MILLRACE_KERNEL(MapDataset, kCpu, MapDatasetKernel);
MILLRACE_KERNEL(ParallelMapDataset, kCpu, ParallelMapDatasetKernel);
MILLRACE_KERNEL(ParallelMapDatasetV2, kCpu, ParallelMapDatasetKernel);
MILLRACE_KERNEL(MapAndBatchDataset, kCpu, MapAndBatchDatasetKernel);
MILLRACE_KERNEL(FilterDataset, kCpu, FilterDatasetKernel);
MILLRACE_KERNEL(FlatMapDataset, kCpu, FlatMapDatasetKernel);
MILLRACE_KERNEL(InterleaveDataset, kCpu, InterleaveDatasetKernel);
MILLRACE_KERNEL(ParallelInterleaveDatasetV2, kCpu, InterleaveDatasetKernel);
MILLRACE_KERNEL(ParallelInterleaveDatasetV3, kCpu, InterleaveDatasetKernel);
MILLRACE_KERNEL(ParallelInterleaveDatasetV4, kCpu, InterleaveDatasetKernel);
MILLRACE_KERNEL(ParallelFilterDataset, kCpu, FilterDatasetKernel);

}  // namespace
}  // namespace millrace
