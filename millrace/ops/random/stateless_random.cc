// Stateless random ops, determined by a seed input.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/random_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::random {
namespace {

MILLRACE_OP(StatelessRandomUniform)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random numbers in [0, 1), determined by the seed.");

MILLRACE_OP(StatelessRandomNormal)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Standard normal random numbers, determined by the seed.");

MILLRACE_OP(StatelessTruncatedNormal)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Normal random numbers truncated at two standard deviations, determined by the seed.");

MILLRACE_OP(StatelessRandomUniformInt)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Input("minval: dtype")
    .Input("maxval: dtype")
    .Output("output: dtype")
    .Attr("dtype: {int32, int64}")
    .Attr("T: {int32, int64}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random integers in [minval, maxval), determined by the seed.");

MILLRACE_OP(StatelessRandomUniformFullInt)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Output("output: dtype")
    .Attr("dtype: {int32, int64, uint32, uint64} = DT_UINT64")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("Tseed: {int32, int64, uint32, uint64} = DT_INT64")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random integers over the whole range of their type, determined by the seed.");

MILLRACE_KERNEL(StatelessRandomUniform, kCpu, RandomKernelOf<SourceKind::kSeedInput, Distribution::kUniform>);
MILLRACE_KERNEL(StatelessRandomNormal, kCpu, RandomKernelOf<SourceKind::kSeedInput, Distribution::kNormal>);
MILLRACE_KERNEL(StatelessTruncatedNormal, kCpu, RandomKernelOf<SourceKind::kSeedInput, Distribution::kTruncatedNormal>);
MILLRACE_KERNEL(StatelessRandomUniformInt, kCpu, RandomKernelOf<SourceKind::kSeedInput, Distribution::kUniformInt>);
MILLRACE_KERNEL(StatelessRandomUniformFullInt, kCpu, RandomKernelOf<SourceKind::kSeedInput, Distribution::kFullInt>);

// What the host makes a stream of.
MILLRACE_HOST_MEMORY(StatelessRandomUniform, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniform, "GPU", "seed");
MILLRACE_HOST_MEMORY(StatelessRandomNormal, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomNormal, "GPU", "seed");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormal, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormal, "GPU", "seed");
MILLRACE_HOST_MEMORY(StatelessRandomUniformInt, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniformInt, "GPU", "seed");
MILLRACE_HOST_MEMORY(StatelessRandomUniformInt, "GPU", "minval");
MILLRACE_HOST_MEMORY(StatelessRandomUniformInt, "GPU", "maxval");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullInt, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullInt, "GPU", "seed");

}  // namespace
}  // namespace millrace::random
