// RngSkip and RngReadAndSkip: the state of a random number generator that is kept in a variable.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::random {
namespace {

constexpr int64_t kPhiloxState = 3;  // the counter's two halves and the key
// A number that is drawn may take this many groups of the stream.
constexpr uint64_t kGroupsPerNumber = 256;

class RngSkipKernel : public Kernel {
 public:
  explicit RngSkipKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t algorithm, Scalar(ctx, 1, "algorithm"));
    MR_ASSIGN_OR_RETURN(const int64_t delta, Scalar(ctx, 2, "delta"));
    if (algorithm != kAlgPhilox) return InvalidArgument("Unsupported algorithm id: ", algorithm);
    MR_ASSIGN_OR_RETURN(const RefPtr<Variable> variable, StateVariable(ctx));
    Tensor* value = nullptr;
    if (ctx.num_outputs() > 0) {
      MR_ASSIGN_OR_RETURN(value, ctx.AllocateOutput(0, Shape({kPhiloxState})));
    }
    return ChangeState(ctx, [&](VariableUpdate* by) {
      return variable->UpdateDense(
          [&](const Tensor& old_state, Tensor* state) -> Status {
            MR_RETURN_IF_ERROR(CheckState(old_state));
            std::array<int64_t, kPhiloxState> before{};
            std::copy_n(old_state.data<int64_t>(), kPhiloxState, before.begin());
            std::copy_n(old_state.data<int64_t>(), old_state.num_elements(), state->data<int64_t>());
            // The counter is a number of 128 bits.
            const uint64_t low = static_cast<uint64_t>(before[0]),
                           next = low + static_cast<uint64_t>(delta) * kGroupsPerNumber;
            state->data<int64_t>()[0] = static_cast<int64_t>(next);
            state->data<int64_t>()[1] = static_cast<int64_t>(static_cast<uint64_t>(before[1]) + (next < low ? 1 : 0));
            if (value != nullptr) std::copy(before.begin(), before.end(), value->data<int64_t>());
            return absl::OkStatus();
          },
          by);
    });
  }

 private:
  static StatusOr<int64_t> Scalar(const KernelContext& ctx, int i, const char* name) {
    const Tensor& t = ctx.input(i);
    if (t.rank() != 0) return InvalidArgument(name, " must have shape [], not ", t.shape().ToString());
    return t.dtype() == DType::kUInt64 ? static_cast<int64_t>(t.scalar<uint64_t>()) : IntAt(t, 0);
  }

  static StatusOr<RefPtr<Variable>> StateVariable(const KernelContext& ctx) {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, ctx.resource<Variable>(0));
    if (variable->dtype() != DType::kInt64) {
      return InvalidArgument("dtype of RNG state variable must be int64, not ", DTypeName(variable->dtype()));
    }
    return variable;
  }

  static Status CheckState(const Tensor& state) {
    if (state.rank() != 1) {
      return InvalidArgument("RNG state must have one and only one dimension, not ", state.rank());
    }
    if (state.dim(0) < kPhiloxState) {
      return InvalidArgument("For the Philox algorithm, the size of state must be at least ", kPhiloxState, "; got ",
                             state.dim(0));
    }
    return absl::OkStatus();
  }
};

Status RngReadAndSkipShape(ShapeContext& c) {
  c.set_output(0, PartialShape({kPhiloxState}));
  return absl::OkStatus();
}

MILLRACE_OP(RngSkip)
    .Input("resource: resource")
    .Input("algorithm: int64")
    .Input("delta: int64")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Advances a generator's state by as many numbers.");
MILLRACE_OP(RngReadAndSkip)
    .Input("resource: resource")
    .Input("alg: int32")
    .Input("delta: uint64")
    .Output("value: int64")
    .Stateful()
    .Shape(RngReadAndSkipShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Advances a generator's state by as many numbers, and returns the state before.");
MILLRACE_KERNEL(RngSkip, kCpu, RngSkipKernel);
MILLRACE_KERNEL(RngReadAndSkip, kCpu, RngSkipKernel);

}  // namespace
}  // namespace millrace::random
