// How a kernel calls functions of the graph's library.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct StepContext;

// A function compiled for one set of attributes. Thread-safe: any number of calls may be in flight.
class CallableFunction {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  virtual ~CallableFunction() = default;
  // Calls `done` exactly once, on any thread, perhaps before returning. `step` lives until then.
  virtual void Run(const StepContext& step, std::vector<Tensor> args, Done done) = 0;
};

// Thread-safe. Behind a shared_ptr where what steps leave behind (a pipeline that reads ahead) may outlive the graph they came from.
class FunctionRunner : public std::enable_shared_from_this<FunctionRunner> {
 public:
  virtual ~FunctionRunner() = default;
  // Compiles at first use and remembers. NOT_FOUND names a function that the library does not have;
  // INVALID_ARGUMENT says what is wrong with its body.
  virtual StatusOr<std::shared_ptr<CallableFunction>> Instantiate(const pb::NameAttrList& function) = 0;
};

}  // namespace millrace
