// Bodies of functions in the making. Internal to the front end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/api/function.h"
#include "millrace/graph/function.h"

namespace millrace::api_internal {

// A graph of its own in which a body is built, then the definition that it makes.
class FunctionBuilder {
 public:
  FunctionBuilder(const Scope& outer, std::string name, const std::vector<FunctionArg>& args);

  const Scope& scope() const { return scope_; }
  const std::vector<Output>& args() const { return args_; }

  // Takes the results. Tensors of graphs around the body that it uses become arguments. False when something failed; the
  // outer scope says what.
  bool Finish(const std::vector<Output>& results);
  // Makes `tensors` the first captured ones, so that several bodies take the same; adds what is missing to it.
  void ShareCaptured(std::vector<Endpoint>* tensors);
  // The captured tensors become the last results, as they came.
  void ReturnCaptured();
  // Puts the function into the outer graph's library.
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
  std::vector<Endpoint> captured_;  // of graphs around
  bool stateful_ = false;
};

// A function's name that the graph of `scope` has not yet.
std::string UniqueFunctionName(const Scope& scope, absl::string_view name);
// Tensors of a graph around a body as outputs of the scope they are used in.
std::vector<Output> AsOutputs(const Scope& scope, const std::vector<Endpoint>& tensors);
pb::NameAttrList FunctionName(const std::string& name);

}  // namespace millrace::api_internal
