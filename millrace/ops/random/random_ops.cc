// Random numbers that follow from the seeds of the node: each execution goes on in its stream.
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
    .Summary("Numbers spread evenly over [0, 1).");

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
    .Summary("Normal numbers of mean 0 and deviation 1.");

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
    .Summary("Normal numbers, drawn again beyond two deviations.");

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
    .Summary("Integers spread evenly over [minval, maxval).");

MILLRACE_KERNEL(RandomUniform, kCpu,
                RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kUniform>);
MILLRACE_KERNEL(RandomStandardNormal, kCpu,
                RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kNormal>);
MILLRACE_KERNEL(TruncatedNormal, kCpu,
                RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kTruncatedNormal>);
MILLRACE_KERNEL(RandomUniformInt, kCpu,
                RandomKernelOf<SourceKind::kSeedAttrs, Distribution::kUniformInt>);

}  // namespace
}  // namespace millrace::random
