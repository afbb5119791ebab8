// Conversion of seeds to the keys and counters of the V2 stateless ops.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::random {
namespace {

Status WriteAlgorithm(KernelContext& ctx, int i) {
  MR_ASSIGN_OR_RETURN(Tensor* const alg, ctx.AllocateOutput(i, Shape()));
  alg->scalar<int32_t>() = kAlgPhilox;
  return absl::OkStatus();
}

class KeyCounterKernel : public Kernel {
 public:
  explicit KeyCounterKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Philox stream, StreamFromSeed(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(Tensor* const key, ctx.AllocateOutput(0, Shape({1})));
    MR_ASSIGN_OR_RETURN(Tensor* const counter, ctx.AllocateOutput(1, Shape({2})));
    const Philox::Group& c = stream.counter();
    key->scalar<uint64_t>() = ToUInt64(stream.key()[0], stream.key()[1]);
    counter->data<uint64_t>()[0] = ToUInt64(c[0], c[1]);
    counter->data<uint64_t>()[1] = ToUInt64(c[2], c[3]);
    return ctx.num_outputs() > 2 ? WriteAlgorithm(ctx, 2) : absl::OkStatus();
  }
};

class GetAlgKernel : public Kernel {
 public:
  explicit GetAlgKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override { return WriteAlgorithm(ctx, 0); }
};

Status KeyCounterShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape seed, c.WithRank(0, 1));
  if (seed.dim(0) >= 0 && seed.dim(0) != 2) {
    return InvalidArgument("seed must have shape [2], not ", seed.ToString());
  }
  c.set_output(0, PartialShape({1}));
  c.set_output(1, PartialShape({2}));
  if (c.num_outputs() > 2) c.set_output(2, PartialShape::Scalar());
  return absl::OkStatus();
}

MILLRACE_OP(StatelessRandomGetKeyCounter)
    .Input("seed: Tseed")
    .Output("key: uint64")
    .Output("counter: uint64")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(KeyCounterShape)
    .NotDifferentiable()
    .Summary("The key and counter for a pair of seeds.");

MILLRACE_OP(StatelessRandomGetKeyCounterAlg)
    .Input("seed: Tseed")
    .Output("key: uint64")
    .Output("counter: uint64")
    .Output("alg: int32")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(KeyCounterShape)
    .NotDifferentiable()
    .Summary("StatelessRandomGetKeyCounter, also with the algorithm.");

MILLRACE_OP(StatelessRandomGetAlg)
    .Output("alg: int32")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The random number algorithm of this device.");

MILLRACE_KERNEL(StatelessRandomGetKeyCounter, kCpu, KeyCounterKernel);
MILLRACE_KERNEL(StatelessRandomGetKeyCounterAlg, kCpu, KeyCounterKernel);
MILLRACE_KERNEL(StatelessRandomGetAlg, kCpu, GetAlgKernel);

}  // namespace
}  // namespace millrace::random
