// Dataset transformations without functions: Batch, Repeat, Take, Skip, Shard, Prefetch, Cache, Zip and their variants.
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

class BatchDatasetKernel : public DatasetKernel {
 public:
  explicit BatchDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t size, Count(ctx, 1, "batch_size", 1));
    bool drop_remainder = false;
    // A parallel batch has a number of calls before it; it gives the same batches.
    if (const int last = ctx.num_inputs() - 1; last > 1) {
      MR_ASSIGN_OR_RETURN(drop_remainder, Scalar<bool>(ctx, last, "drop_remainder"));
    }
    return input.Batch(size, drop_remainder);
  }
};

class RepeatDatasetKernel : public DatasetKernel {
 public:
  explicit RepeatDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t count, Scalar<int64_t>(ctx, 1, "count"));
    return input.Repeat(count);
  }
};

// A negative count takes everything.
class TakeDatasetKernel : public DatasetKernel {
 public:
  explicit TakeDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t count, Scalar<int64_t>(ctx, 1, "count"));
    return count < 0 ? input : input.Take(count);
  }
};

// A negative count skips everything.
class SkipDatasetKernel : public DatasetKernel {
 public:
  explicit SkipDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t count, Scalar<int64_t>(ctx, 1, "count"));
    return count < 0 ? input.Take(0) : input.Skip(count);
  }
};

class ShardDatasetKernel : public DatasetKernel {
 public:
  explicit ShardDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t shards, Count(ctx, 1, "num_shards", 1));
    MR_ASSIGN_OR_RETURN(const int64_t index, Count(ctx, 2, "index", 0));
    if (index >= shards) return InvalidArgument("index must be below num_shards = ", shards, ", not ", index);
    return input.Shard(shards, index);
  }
};

// -1 lets the runtime choose.
constexpr int64_t kAutotune = -1;

class PrefetchDatasetKernel : public DatasetKernel {
 public:
  explicit PrefetchDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t size, Count(ctx, 1, "buffer_size", kAutotune));
    if (size == 0) return input;
    return input.Prefetch(size == kAutotune ? 2 : size);
  }
};

class CacheDatasetKernel : public DatasetKernel {
 public:
  explicit CacheDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const std::string file, Scalar<std::string>(ctx, 1, "filename"));
    if (!file.empty()) {
      return Unimplemented("a dataset cached in a file ('", file, "'): leave the file name empty to cache in memory");
    }
    return input.Cache();
  }
};

class ConcatenateDatasetKernel : public DatasetKernel {
 public:
  explicit ConcatenateDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const Dataset next, Input(ctx, 1));
    return input.Concatenate(next);
  }
};

// Options tune TensorFlow's pipelines; none of them changes the elements.
class OptionsDatasetKernel : public DatasetKernel {
 public:
  explicit OptionsDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override { return Input(ctx, 0); }
};

class ZipDatasetKernel : public DatasetKernel {
 public:
  explicit ZipDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    std::vector<Dataset> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Dataset input, Input(ctx, i));
      inputs.push_back(std::move(input));
    }
    return Dataset::Zip(std::move(inputs));
  }
};

MILLRACE_OP(BatchDataset)
    .Input("input_dataset: variant")
    .Input("batch_size: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Stacks consecutive elements along a new first dimension.");

MILLRACE_OP(BatchDatasetV2)
    .Input("input_dataset: variant")
    .Input("batch_size: int64")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .Attr("parallel_copy: bool = false")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Stacks consecutive elements along a new first dimension; a smaller last batch may be dropped.");

MILLRACE_OP(RepeatDataset)
    .Input("input_dataset: variant")
    .Input("count: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Repeats the input count times; indefinitely if negative.");

MILLRACE_OP(TakeDataset)
    .Input("input_dataset: variant")
    .Input("count: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The first elements.");

MILLRACE_OP(SkipDataset)
    .Input("input_dataset: variant")
    .Input("count: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("All but the first elements.");

MILLRACE_OP(ShardDataset)
    .Input("input_dataset: variant")
    .Input("num_shards: int64")
    .Input("index: int64")
    .Output("handle: variant")
    .Attr("require_non_empty: bool = false")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Every num_shards-th element, from number index on.");

MILLRACE_OP(PrefetchDataset)
    .Input("input_dataset: variant")
    .Input("buffer_size: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("slack_period: int = 0")
    .Attr("legacy_autotune: bool = true")
    .Attr("buffer_size_min: int = 0")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements, prefetched on a background thread.");

MILLRACE_OP(CacheDataset)
    .Input("input_dataset: variant")
    .Input("filename: string")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements, cached in memory after the first pass.");

MILLRACE_OP(ConcatenateDataset)
    .Input("input_dataset: variant")
    .Input("another_dataset: variant")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The elements of one dataset followed by those of another.");

MILLRACE_OP(OptionsDataset)
    .Input("input_dataset: variant")
    .Output("handle: variant")
    .Attr("serialized_options: string")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements.");

MILLRACE_OP(ZipDataset)
    .Input("input_datasets: N * variant")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("N: int >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Element i has the components of element i of each input.");

MILLRACE_OP(ParallelBatchDataset)
    .Input("input_dataset: variant")
    .Input("batch_size: int64")
    .Input("num_parallel_calls: int64")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .Attr("parallel_copy: bool = false")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("deterministic: string = 'default'")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Stacks consecutive elements along a new first dimension.");
MILLRACE_OP(MaxIntraOpParallelismDataset)
    .Input("input_dataset: variant")
    .Input("max_intra_op_parallelism: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; the number of threads stays the task's.");
MILLRACE_OP(PrivateThreadPoolDataset)
    .Input("input_dataset: variant")
    .Input("num_threads: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; the threads stay the task's.");

MILLRACE_OP(RewriteDataset)
    .Input("input_dataset: variant")
    .Input("rewrite_name: string")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; how they are made is the task's business.");

MILLRACE_OP(FinalizeDataset)
    .Input("input_dataset: variant")
    .Output("handle: variant")
    .Attr("has_captured_ref: bool = false")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; the options of a whole pipeline do not change them.");

MILLRACE_OP(ModelDataset)
    .Input("input_dataset: variant")
    .Output("handle: variant")
    .Attr("algorithm: int = 0")
    .Attr("cpu_budget: int = 0")
    .Attr("ram_budget: int = 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; buffers are not tuned.");

MILLRACE_OP(OptimizeDatasetV2)
    .Input("input_dataset: variant")
    .Input("optimizations_enabled: string")
    .Input("optimizations_disabled: string")
    .Input("optimizations_default: string")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("optimization_configs: list(string) = []")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The same elements; pipelines are not rewritten.");

MILLRACE_KERNEL(FinalizeDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(ModelDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(OptimizeDatasetV2, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(RewriteDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(ParallelBatchDataset, kCpu, BatchDatasetKernel);
MILLRACE_KERNEL(MaxIntraOpParallelismDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(PrivateThreadPoolDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(BatchDataset, kCpu, BatchDatasetKernel);
MILLRACE_KERNEL(BatchDatasetV2, kCpu, BatchDatasetKernel);
MILLRACE_KERNEL(RepeatDataset, kCpu, RepeatDatasetKernel);
MILLRACE_KERNEL(TakeDataset, kCpu, TakeDatasetKernel);
MILLRACE_KERNEL(SkipDataset, kCpu, SkipDatasetKernel);
MILLRACE_KERNEL(ShardDataset, kCpu, ShardDatasetKernel);
MILLRACE_KERNEL(PrefetchDataset, kCpu, PrefetchDatasetKernel);
MILLRACE_KERNEL(CacheDataset, kCpu, CacheDatasetKernel);
MILLRACE_KERNEL(ConcatenateDataset, kCpu, ConcatenateDatasetKernel);
MILLRACE_KERNEL(OptionsDataset, kCpu, OptionsDatasetKernel);
MILLRACE_KERNEL(ZipDataset, kCpu, ZipDatasetKernel);

}  // namespace
}  // namespace millrace
