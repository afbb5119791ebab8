#include "millrace/ops/functional/function_call.h"

#include "millrace/runtime/run_records.h"

namespace millrace {

std::vector<Tensor> InputsFrom(const KernelContext& ctx, int first) {
  std::vector<Tensor> inputs;
  inputs.reserve(ctx.num_inputs() - first);
  for (int i = first; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.input(i));
  return inputs;
}

uint64_t CallSite(const KernelContext& ctx) { return ctx.step().run == nullptr ? 0 : ExecutionKey(ctx); }

Status SetOutputs(KernelContext& ctx, const std::string& function, std::vector<Tensor> results) {
  if (static_cast<int>(results.size()) != ctx.num_outputs()) {
    return InvalidArgument("function '", function, "' gave ", results.size(), " results, but the node has ",
                           ctx.num_outputs(), " outputs");
  }
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (results[i].dtype() != ctx.output_type(i)) {
      return InvalidArgument("result ", i, " of function '", function, "' is ", DTypeName(results[i].dtype()),
                             ", but the node's output is ", DTypeName(ctx.output_type(i)));
    }
    ctx.SetOutput(i, std::move(results[i]));
  }
  return absl::OkStatus();
}

void RunAsNode(KernelContext& ctx, NamedFunction& function, int first, Kernel::Done done) {
  StatusOr<std::shared_ptr<CallableFunction>> f = function.Get(ctx.step());
  if (!f.ok()) {
    done(f.status());
    return;
  }
  (*f)->Run(ctx.step(), CallSite(ctx), InputsFrom(ctx, first),
            [&ctx, &function, done = std::move(done)](StatusOr<std::vector<Tensor>> results) mutable {
              done(results.ok() ? SetOutputs(ctx, function.name(), *std::move(results)) : results.status());
            });
}

}  // namespace millrace
