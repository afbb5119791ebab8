#include "millrace/ops/data_flow/tensor_array_gradient.h"

namespace millrace {

GradientArray MakeGradientArray(GradientContext& c, Endpoint handle, Endpoint flow) {
  GradientArray array;
  const std::string& type = c.node()->type();
  if (const size_t n = type.size(); n > 2 && type[n - 2] == 'V') array.version = type.substr(n - 2);
  // "gradients/layer/Read_grad": all gradients of one AddGradients call share an array, different calls do not.
  absl::string_view source = c.prefix;
  const std::string own = absl::StrCat("/", c.node()->name(), "_grad");
  if (source.size() > own.size() && source.substr(source.size() - own.size()) == own) {
    source.remove_suffix(own.size());
  }
  Node* const made = c.AddNode("TensorArrayGrad" + array.version, {handle, flow}, {{"source", std::string(source)}});
  if (made == nullptr) return array;
  array.handle = Endpoint{made, 0};
  c.control_inputs.push_back(made);
  array.flow = c.Op("Identity", {flow}, {}, "gradient_flow");
  c.control_inputs.pop_back();
  return array;
}

PartialShape ElementShapeOf(const ShapeContext& c) {
  const Node* const maker = c.node().input(0).node;
  if (!maker->is_type("TensorArrayV3") && !maker->is_type("TensorArrayV2") && !maker->is_type("TensorArray")) {
    return PartialShape();
  }
  return maker->AttrOr<PartialShape>("element_shape", PartialShape());
}

}  // namespace millrace
