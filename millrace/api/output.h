// Results of op builders: an Output is a symbolic tensor, an Operation the node that produces it.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/graph/graph.h"

namespace millrace {

// A node of the graph. Empty if building it failed; the scope's status then has the error.
class Operation {
 public:
  Operation() = default;
  Operation(Scope scope, Node* node) : scope_(std::move(scope)), node_(node) {}
  Operation(const Output& output);  // NOLINT: the op that produces it

  Node* node() const { return node_; }
  bool empty() const { return node_ == nullptr; }
  // The scope that it was built in.
  const Scope& scope() const { return scope_; }
  const std::string& name() const;  // "layer1/MatMul"; "" if empty
  const std::string& type() const;  // "MatMul"; "" if empty
  int num_outputs() const { return node_ == nullptr ? 0 : node_->num_outputs(); }
  // Empty if there is no such output.
  Output output(int i) const;
  std::vector<Output> outputs(int begin, int end) const;

 private:
  Scope scope_;
  Node* node_ = nullptr;
};

// One output of a node. Cheap to copy. It can be used as an Input, in operators, and as a feed or fetch. Operators add
// their ops to the scope of the left tensor.
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

  std::string name() const;  // "layer1/MatMul:0"; "" if empty
  DType dtype() const;       // the value type, also for a reference; kInvalid if empty
  // The inferred shape.
  PartialShape shape() const { return empty() ? PartialShape() : endpoint_.shape(); }

 private:
  Scope scope_;
  Endpoint endpoint_;
};

}  // namespace millrace
