// GraphBuilder: the API that gradients, passes and the C++ front end use to add nodes.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {

// Adds nodes with a common name prefix, device and control inputs. The first error is sticky: later calls are no-ops
// that return empty endpoints, and status() returns that error, naming the node and the op. Shapes are inferred as
// nodes are added, so a mistake is reported for the call that made it.
class GraphBuilder {
 public:
  explicit GraphBuilder(Graph* graph) : graph_(graph) {}

  Graph* graph() const { return graph_; }
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  void UpdateStatus(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  // Settings for the nodes added next.
  std::string prefix;  // "gradients/layer1"
  std::string device;
  std::vector<Node*> control_inputs;
  std::vector<std::string> colocate_with;  // node names; become the _class attr

  // Adds an op. Inputs of list arguments are passed flattened; the length attr is inferred if the schema has only one
  // list. Type attrs that the inputs determine may be omitted. `name` is made unique under the prefix; the default is
  // the op's name.
  Node* AddNode(absl::string_view op, absl::Span<const Endpoint> inputs, AttrList attrs = {},
                absl::string_view name = "");
  // The same, returning output 0.
  Endpoint Op(absl::string_view op, std::initializer_list<Endpoint> inputs, AttrList attrs = {},
              absl::string_view name = "") {
    return First(AddNode(op, absl::MakeConstSpan(inputs.begin(), inputs.size()), std::move(attrs), name));
  }
  Endpoint Op(absl::string_view op, const std::vector<Endpoint>& inputs, AttrList attrs = {},
              absl::string_view name = "") {
    return First(AddNode(op, inputs, std::move(attrs), name));
  }

  // Shorthands for common ops.
  Endpoint Const(const Tensor& value, absl::string_view name = "Const");
  template <typename T>
  Endpoint Scalar(T value) {
    return Const(Tensor::Scalar<T>(value));
  }
  Endpoint Ints(std::vector<int32_t> values) { return Const(Tensor::FromVector(values)); }
  // A scalar of the given type.
  Endpoint ScalarLike(double value, DType dtype);
  Endpoint Shape(Endpoint x) { return Op("Shape", {x}); }
  Endpoint Rank(Endpoint x) { return Op("Rank", {x}); }
  Endpoint Add(Endpoint a, Endpoint b) { return Op("AddV2", {a, b}); }
  Endpoint Sub(Endpoint a, Endpoint b) { return Op("Sub", {a, b}); }
  Endpoint Mul(Endpoint a, Endpoint b) { return Op("Mul", {a, b}); }
  Endpoint Div(Endpoint a, Endpoint b) { return Op("RealDiv", {a, b}); }
  Endpoint Neg(Endpoint a) { return Op("Neg", {a}); }
  Endpoint Reshape(Endpoint x, Endpoint shape) { return Op("Reshape", {x, shape}); }
  Endpoint Cast(Endpoint x, DType to);  // x itself if it has that type
  Endpoint ZerosLike(Endpoint x) { return Op("ZerosLike", {x}); }
  Endpoint OnesLike(Endpoint x) { return Op("OnesLike", {x}); }
  Endpoint Conj(Endpoint x);  // x itself unless complex

 private:
  Endpoint First(Node* node) { return node == nullptr ? Endpoint{} : Endpoint{node, 0}; }

  Graph* graph_;
  Status status_;
};

}  // namespace millrace
