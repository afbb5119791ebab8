#include "millrace/graph/graph_builder.h"

#include "absl/strings/str_cat.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Node* GraphBuilder::AddNode(absl::string_view op, absl::Span<const Endpoint> inputs, AttrList attrs,
                            absl::string_view name) {
  if (!status_.ok()) return nullptr;
  NodeSpec spec;
  spec.op = std::string(op);
  if (name.empty()) name = op;
  spec.name = graph_->UniqueName(prefix.empty() ? std::string(name) : absl::StrCat(prefix, "/", name));
  spec.inputs.assign(inputs.begin(), inputs.end());
  spec.control_inputs = control_inputs;
  spec.device = device;
  for (auto& [key, init] : attrs) spec.attrs[key] = std::move(init).value();
  if (!colocate_with.empty()) {
    auto* list = spec.attrs["_class"].mutable_list();
    for (const std::string& other : colocate_with) list->add_s(absl::StrCat("loc:@", other));
  }
  StatusOr<Node*> node = graph_->AddNode(std::move(spec));
  if (!node.ok()) {
    status_ = node.status();
    return nullptr;
  }
  if (Status s = InferNodeShapes(graph_, *node); !s.ok()) {
    status_ = s;
    graph_->RemoveNodes([&](const Node* n) { return n == *node; });
    return nullptr;
  }
  return *node;
}

Endpoint GraphBuilder::Const(const Tensor& value, absl::string_view name) {
  return Op("Const", std::initializer_list<Endpoint>{}, {{"value", value}, {"dtype", value.dtype()}}, name);
}

Endpoint GraphBuilder::ScalarLike(double value, DType dtype) {
  const DType base = BaseType(dtype);
  Tensor t;
  const bool known = DispatchType(NumberTypes{}, base, [&](auto tag) {
    using T = typename decltype(tag)::type;
    t = Tensor::Scalar<T>(static_cast<T>(value));
  });
  if (!known) {
    UpdateStatus(InvalidArgument("there is no numeric constant of type ", DTypeName(base)));
    return {};
  }
  return Const(t);
}

Endpoint GraphBuilder::Cast(Endpoint x, DType to) {
  if (!x || BaseType(x.dtype()) == to) return x;
  return Op("Cast", {x}, {{"DstT", to}});
}

Endpoint GraphBuilder::Conj(Endpoint x) {
  if (!x || !IsComplex(BaseType(x.dtype()))) return x;
  return Op("Conj", {x});
}

}  // namespace millrace
