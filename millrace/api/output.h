// What ops give: an Output is a tensor to come, an Operation the node that makes it.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/graph/graph.h"

namespace millrace {

// A node of the graph. Empty when building it failed; then the scope's status says why.
class Operation {
 public:
  Operation() = default;
  Operation(Scope scope, Node* node) : scope_(std::move(scope)), node_(node) {}
  Operation(const Output& output);  // NOLINT: the op that gives it

  Node* node() const { return node_; }
  bool empty() const { return node_ == nullptr; }
  // Where it was built.
  const Scope& scope() const { return scope_; }
  const std::string& name() const;  // "layer1/MatMul"; "" when empty
  const std::string& type() const;  // "MatMul"; "" when empty
  int num_outputs() const { return node_ == nullptr ? 0 : node_->num_outputs(); }
  // Empty when there is no such output.
  Output output(int i) const;
  std::vector<Output> outputs(int begin, int end) const;

 private:
  Scope scope_;
  Node* node_ = nullptr;
};

// One output of a node; a cheap value. Usable wherever an Input is expected, in operators, and as
// what to feed or fetch. The ops that operators add go into the scope of their left tensor.
class Output {
 public:
  Output() = default;
  Output(Scope scope, Endpoint endpoint) : scope_(std::move(scope)), endpoint_(endpoint) {}

  const Endpoint& endpoint() const { return endpoint_; }
  Node* node() const { return endpoint_.node; }
  int index() const { return endpoint_.index; }
  bool empty() const { return endpoint_.node == nullptr; }
  const Scope& scope() const { return scope_; }
  Operation op() const { return Operation(scope_, endpoint_.node); }

  std::string name() const;  // "layer1/MatMul:0"; "" when empty
  DType dtype() const;       // of the values, also for a reference; kInvalid when empty
  // What is known of it.
  PartialShape shape() const { return empty() ? PartialShape() : endpoint_.shape(); }

 private:
  Scope scope_;
  Endpoint endpoint_;
};

}  // namespace millrace
