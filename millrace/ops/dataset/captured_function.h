// Graph functions that an input pipeline calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/ops/dataset/dataset_value.h"
#include "millrace/runtime/function_runner.h"

namespace millrace {

// A function and its captured tensors. Thread-safe.
class CapturedFunction {
 public:
  // The captured tensors are the inputs [first, first + count) of the node. Adds the context of the calls to
  // `parts`.
  static StatusOr<std::shared_ptr<const CapturedFunction>> Make(KernelContext& ctx, const pb::NameAttrList& function,
                                                                int first, int count, PipelineParts* parts);

  // Calls the function with `args` followed by the captured tensors and blocks until it has finished.
  StatusOr<std::vector<Tensor>> Call(std::vector<Tensor> args) const;

 private:
  CapturedFunction() = default;

  std::string name_;
  std::shared_ptr<CallableFunction> function_;
  std::vector<Tensor> captured_;
  std::shared_ptr<PipelineContext> context_;
};

}  // namespace millrace
