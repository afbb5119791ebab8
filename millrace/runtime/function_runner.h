// The interface by which kernels call functions of the graph's library.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct StepContext;

// A function instantiated with one set of attributes. Thread-safe: any number of calls may be in flight.
class CallableFunction {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  virtual ~CallableFunction() = default;
  // Calls `done` exactly once, on any thread, possibly before returning. `step` must be valid until then. `site`
  // identifies the call within the step (CallSite); 0 if that does not matter.
  virtual void Run(const StepContext& step, uint64_t site, std::vector<Tensor> args, Done done) = 0;
};

// Thread-safe. Held by shared_ptr because what a step creates (such as an iterator that prefetches) may outlive the
// graph.
class FunctionRunner : public std::enable_shared_from_this<FunctionRunner> {
 public:
  virtual ~FunctionRunner() = default;
  // Compiles on first use and caches the result. NOT_FOUND, naming the function, if the library does not have it;
  // INVALID_ARGUMENT if its body is invalid.
  virtual StatusOr<std::shared_ptr<CallableFunction>> Instantiate(const pb::NameAttrList& function) = 0;
};

}  // namespace millrace
