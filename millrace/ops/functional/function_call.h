// Function calls of the kernels in this folder.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/function_runner.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// A function named by a node's attr, compiled on first use. The step's FunctionRunner owns it: a function that calls
// itself would otherwise own itself. Thread-safe.
class NamedFunction {
 public:
  NamedFunction() = default;
  explicit NamedFunction(pb::NameAttrList name) : name_(std::move(name)) {}
  void Set(pb::NameAttrList name) { name_ = std::move(name); }

  // Compiles without the lock: steps that call it for the first time at once may each ask for it, and all of them get
  // the same function.
  StatusOr<std::shared_ptr<CallableFunction>> Get(const StepContext& step) {
    {
      MutexLock lock(&mu_);
      if (std::shared_ptr<CallableFunction> function = function_.lock()) return function;
    }
    if (step.functions == nullptr) return Internal("there is nothing here that runs functions");
    MR_ASSIGN_OR_RETURN(std::shared_ptr<CallableFunction> compiled, step.functions->Instantiate(name_));
    MutexLock lock(&mu_);
    function_ = compiled;
    return compiled;
  }
  const std::string& name() const { return name_.name(); }

 private:
  pb::NameAttrList name_;
  Mutex mu_;
  std::weak_ptr<CallableFunction> function_ ABSL_GUARDED_BY(mu_);
};

// Inputs [first, end) of a node.
std::vector<Tensor> InputsFrom(const KernelContext& ctx, int first);

// Identifies the call of a function by this node, for its StepContext (ForCall).
uint64_t CallSite(const KernelContext& ctx);

// Sets the outputs of `ctx` from a function's results. INVALID_ARGUMENT if their number or types differ.
Status SetOutputs(KernelContext& ctx, const std::string& function, std::vector<Tensor> results);

// Runs `function` on inputs [first, end) and makes its results the node's outputs.
void RunAsNode(KernelContext& ctx, NamedFunction& function, int first, Kernel::Done done);

}  // namespace millrace
