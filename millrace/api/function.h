// Functions: parts of a graph that are written once and called often, also by themselves.
//
//   Function square = Function::Define(root, "square", {{DType::kFloat}},
//       [](const Scope& s, const std::vector<Output>& args) { return std::vector<Output>{args[0] * args[0]}; });
//   Output y = square(root, {x})[0];
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

// What an argument is. A shape that is given is trusted within the body.
struct FunctionArg {
  DType dtype = DType::kFloat;
  PartialShape shape = {};
};

// A cheap value. The function lives in the library of the graph it was defined in.
class Function {
 public:
  // Builds the body into `scope`, with one output for each argument, and returns the results. A tensor from around the
  // function that the body uses becomes a further argument, which calls pass on by themselves; so each call sees the
  // same one.
  using Body = std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& args)>;

  Function() = default;
  // The name is made unique in the graph. What is wrong in the body makes the scope fail; the function is then empty.
  static Function Define(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args, const Body& body);

  // For a body that calls the function it is of: declared first, with its results, and then defined.
  static Function Declare(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args,
                          const std::vector<FunctionArg>& results);
  // INVALID_ARGUMENT in the scope when the body takes tensors from around it or gives other results than were declared.
  void DefineAs(const Scope& scope, const Body& body) const;

  // Adds a call. Gradients flow through it.
  std::vector<Output> operator()(const Scope& scope, const std::vector<Output>& args) const;

  bool empty() const { return name_.empty(); }
  const std::string& name() const { return name_; }
  const std::vector<Output>& captured() const { return captured_; }
  const std::vector<FunctionArg>& results() const { return results_; }
  bool is_stateful() const { return stateful_; }

 private:
  std::string name_;
  std::vector<FunctionArg> args_;
  std::vector<FunctionArg> results_;
  std::vector<Output> captured_;
  bool stateful_ = true;
};

}  // namespace millrace
