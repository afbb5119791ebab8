// Stateless random ops, determined by key and counter inputs.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/random_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::random {
namespace {

MILLRACE_OP(StatelessRandomUniformV2)
    .Input("shape: Tshape")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random numbers in [0, 1), determined by key and counter.");

MILLRACE_OP(StatelessRandomNormalV2)
    .Input("shape: Tshape")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Standard normal random numbers, determined by key and counter.");

MILLRACE_OP(StatelessTruncatedNormalV2)
    .Input("shape: Tshape")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Output("output: dtype")
    .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Normal random numbers truncated at two standard deviations, determined by key and counter.");

MILLRACE_OP(StatelessRandomUniformIntV2)
    .Input("shape: Tshape")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Input("minval: dtype")
    .Input("maxval: dtype")
    .Output("output: dtype")
    .Attr("dtype: {int32, int64, uint32, uint64}")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random integers in [minval, maxval), determined by key and counter.");

MILLRACE_OP(StatelessRandomUniformFullIntV2)
    .Input("shape: Tshape")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Output("output: dtype")
    .Attr("dtype: {int32, int64, uint32, uint64} = DT_UINT64")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Uniform random integers over the whole range of their type, determined by key and counter.");

MILLRACE_KERNEL(StatelessRandomUniformV2, kCpu, RandomKernelOf<SourceKind::kKeyInputs, Distribution::kUniform>);
MILLRACE_KERNEL(StatelessRandomNormalV2, kCpu, RandomKernelOf<SourceKind::kKeyInputs, Distribution::kNormal>);
MILLRACE_KERNEL(StatelessTruncatedNormalV2, kCpu,
                RandomKernelOf<SourceKind::kKeyInputs, Distribution::kTruncatedNormal>);
MILLRACE_KERNEL(StatelessRandomUniformIntV2, kCpu, RandomKernelOf<SourceKind::kKeyInputs, Distribution::kUniformInt>);
MILLRACE_KERNEL(StatelessRandomUniformFullIntV2, kCpu, RandomKernelOf<SourceKind::kKeyInputs, Distribution::kFullInt>);

// What the host makes a stream of.
MILLRACE_HOST_MEMORY(StatelessRandomUniformV2, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniformV2, "GPU", "key");
MILLRACE_HOST_MEMORY(StatelessRandomUniformV2, "GPU", "counter");
MILLRACE_HOST_MEMORY(StatelessRandomUniformV2, "GPU", "alg");
MILLRACE_HOST_MEMORY(StatelessRandomNormalV2, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomNormalV2, "GPU", "key");
MILLRACE_HOST_MEMORY(StatelessRandomNormalV2, "GPU", "counter");
MILLRACE_HOST_MEMORY(StatelessRandomNormalV2, "GPU", "alg");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormalV2, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormalV2, "GPU", "key");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormalV2, "GPU", "counter");
MILLRACE_HOST_MEMORY(StatelessTruncatedNormalV2, "GPU", "alg");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "key");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "counter");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "alg");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "minval");
MILLRACE_HOST_MEMORY(StatelessRandomUniformIntV2, "GPU", "maxval");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullIntV2, "GPU", "shape");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullIntV2, "GPU", "key");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullIntV2, "GPU", "counter");
MILLRACE_HOST_MEMORY(StatelessRandomUniformFullIntV2, "GPU", "alg");

}  // namespace
}  // namespace millrace::random
