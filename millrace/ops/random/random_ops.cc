// Stateful random ops, seeded by attrs: each execution continues the node's stream.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/random_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::random {
namespace {

MILLRACE_OP(RandomUniform)
    .Input("shape: T")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("dtype: {half, bfloat16, float, double}")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(RandomShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Uniform random numbers in [0, 1).");

MILLRACE_OP(RandomStandardNormal)
    .Input("shape: T")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("dtype: {half, bfloat16, float, double}")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(RandomShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Standard normal random numbers.");

MILLRACE_OP(TruncatedNormal)
    .Input("shape: T")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("dtype: {half, bfloat16, float, double}")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(RandomShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Normal random numbers truncated at two standard deviations.");

MILLRACE_OP(RandomUniformInt)
    .Input("shape: T")
    .Input("minval: Tout")
    .Input("maxval: Tout")
    .Output("output: Tout")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("Tout: {int32, int64}")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(RandomShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Uniform random integers in [minval, maxval).");

MILLRACE_KERNEL(RandomUniform, kCpu, RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kUniform>);
MILLRACE_KERNEL(RandomStandardNormal, kCpu, RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kNormal>);
MILLRACE_KERNEL(TruncatedNormal, kCpu, RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kTruncatedNormal>);
MILLRACE_KERNEL(RandomUniformInt, kCpu, RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kUniformInt>);

// What the host makes a stream of.
MILLRACE_HOST_MEMORY(RandomUniform, "GPU", "shape");
MILLRACE_HOST_MEMORY(RandomStandardNormal, "GPU", "shape");
MILLRACE_HOST_MEMORY(TruncatedNormal, "GPU", "shape");
MILLRACE_HOST_MEMORY(RandomUniformInt, "GPU", "shape");
MILLRACE_HOST_MEMORY(RandomUniformInt, "GPU", "minval");
MILLRACE_HOST_MEMORY(RandomUniformInt, "GPU", "maxval");

}  // namespace
}  // namespace millrace::random
