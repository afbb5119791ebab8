#include "absl/strings/str_cat.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/node_types.h"

namespace millrace {

std::string Endpoint::name() const {
  if (node == nullptr) return "<none>";
  return absl::StrCat(node->name(), ":", index);
}

DType Endpoint::dtype() const { return node == nullptr ? DType::kInvalid : node->output_type(index); }

const PartialShape& Endpoint::shape() const {
  static const PartialShape& unknown = *new PartialShape();
  return node == nullptr ? unknown : node->output_shape(index);
}

const PartialShape& Node::output_shape(int i) const {
  static const PartialShape& unknown = *new PartialShape();
  return output_shapes_.empty() ? unknown : output_shapes_[i];
}

const pb::AttrValue* Node::FindAttr(absl::string_view name) const { return millrace::FindAttr(*op_, *attrs_, name); }

Status Node::MissingAttr(absl::string_view name) const {
  return NotFound("{{node ", name_, "}} (op ", op_->name, "): No attr named '", name, "' in the node");
}

Status Node::WrongAttr(absl::string_view name, const Status& why) const {
  return WithPrefix(absl::StrCat("{{node ", name_, "}} (op ", op_->name, "): attr '", name, "' "), why);
}

absl::Span<const std::string> Node::origins() const {
  if (origins_.empty()) return absl::MakeConstSpan(&name_, 1);
  return origins_;
}

}  // namespace millrace
