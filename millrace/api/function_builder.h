// Construction of function bodies. Internal to the front end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/api/function.h"
#include "millrace/graph/function.h"

namespace millrace::api_internal {

// Builds a body in a separate graph and converts it to a function definition.
class FunctionBuilder {
 public:
  FunctionBuilder(const Scope& outer, std::string name, const std::vector<FunctionArg>& args);

  const Scope& scope() const { return scope_; }
  const std::vector<Output>& args() const { return args_; }

  // Sets the results. Tensors of surrounding graphs that the body uses become arguments (captures). Returns false on
  // failure; the outer scope has the error.
  bool Finish(const std::vector<Output>& results);
  // Makes `tensors` the first captures, so that several bodies have the same ones, and appends this body's other
  // captures to it.
  void ShareCaptured(std::vector<Endpoint>* tensors);
  // Appends the captured tensors, unchanged, to the results.
  void ReturnCaptured();
  // Adds the function to the outer graph's library.
  void AddToLibrary();

  const std::string& name() const { return body_.name; }
  std::vector<FunctionArg> results() const;
  bool is_stateful() const { return stateful_; }

 private:
  Node* AddArg(DType dtype, const PartialShape& shape);

  Scope outer_;
  Scope scope_;
  std::vector<Output> args_;
  FunctionBody body_;
  std::vector<Endpoint> captured_;  // of surrounding graphs
  bool stateful_ = false;
};

// A function name that is unused in the graph of `scope`.
std::string UniqueFunctionName(const Scope& scope, absl::string_view name);
// Tensors of a surrounding graph as Outputs of `scope`.
std::vector<Output> AsOutputs(const Scope& scope, const std::vector<Endpoint>& tensors);
pb::NameAttrList FunctionName(const std::string& name);

}  // namespace millrace::api_internal
