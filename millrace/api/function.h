// Functions: reusable, possibly recursive parts of a graph.
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

// The type of an argument. The body may rely on a given shape.
struct FunctionArg {
  DType dtype = DType::kFloat;
  PartialShape shape = {};
};

// Cheap to copy. The function is stored in the library of the graph that it was defined in.
class Function {
 public:
  // Builds the body in `scope` from one output per argument and returns the results. A tensor of the surrounding graph
  // that the body uses is captured: it becomes an additional argument that every call passes implicitly.
  using Body = std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& args)>;

  Function() = default;
  // The name is made unique in the graph. An error in the body becomes the scope's error; the function is then empty.
  static Function Define(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args,
                         const Body& body);

  // For recursive functions: declares the function with its results, to be defined by DefineAs.
  static Function Declare(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args,
                          const std::vector<FunctionArg>& results);
  // The scope fails with INVALID_ARGUMENT if the body captures tensors or its results differ from the declared ones.
  void DefineAs(const Scope& scope, const Body& body) const;

  // Adds a call. Gradients can be taken through it.
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
