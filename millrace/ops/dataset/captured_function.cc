#include "millrace/ops/dataset/captured_function.h"

#include "absl/types/optional.h"
#include "millrace/base/mutex.h"

namespace millrace {

StatusOr<std::shared_ptr<const CapturedFunction>> CapturedFunction::Make(KernelContext& ctx,
                                                                         const pb::NameAttrList& function, int first,
                                                                         int count, PipelineParts* parts) {
  if (ctx.step().functions == nullptr) return NotFound("the graph has no function '", function.name(), "'");
  std::shared_ptr<CapturedFunction> made(new CapturedFunction);
  made->name_ = function.name();
  MR_ASSIGN_OR_RETURN(made->function_, ctx.step().functions->Instantiate(function));
  for (int i = first; i < first + count; ++i) made->captured_.push_back(ctx.input(i));
  made->context_ = std::make_shared<PipelineContext>(ctx.step());
  parts->contexts.push_back(made->context_);
  return std::shared_ptr<const CapturedFunction>(std::move(made));
}

StatusOr<std::vector<Tensor>> CapturedFunction::Call(std::vector<Tensor> args) const {
  args.insert(args.end(), captured_.begin(), captured_.end());
  StatusOr<std::vector<Tensor>> results = Internal("not called");
  Notification done;
  const std::shared_ptr<const PipelineContext::Iteration> iteration = context_->iteration();
  function_->Run(iteration->step, /*site=*/0, std::move(args), [&](StatusOr<std::vector<Tensor>> r) {
    results = std::move(r);
    done.Notify();
  });
  done.Wait();
  return results;
}

}  // namespace millrace
