#include "millrace/saved_model/graph_attrs.h"

#include <map>
#include <set>
#include <string>

#include "millrace/graph/op_schema.h"

namespace millrace {
namespace {

// The version of TensorFlow's graph format whose rules Millrace's graphs follow: from 24 on, for instance, the shape []
// of a Placeholder is a scalar's.
constexpr int kGraphVersion = 1087;

// Calls `visit` for each node of the graph and of its functions.
template <typename Visit>
void ForEachNode(pb::GraphDef* graph, Visit visit) {
  for (pb::NodeDef& node : *graph->mutable_node()) visit(&node);
  for (pb::FunctionDef& function : *graph->mutable_library()->mutable_function()) {
    for (pb::NodeDef& node : *function.mutable_node_def()) visit(&node);
  }
}

bool Equal(const pb::AttrValue& a, const pb::AttrValue& b) { return a.SerializeAsString() == b.SerializeAsString(); }

void Fill(const OpArg& arg, pb::OpDef::ArgDef* def) {
  def->set_name(arg.name);
  if (arg.type != DType::kInvalid) def->set_type(static_cast<pb::DataType>(arg.type));
  def->set_type_attr(arg.type_attr);
  def->set_type_list_attr(arg.type_list_attr);
  def->set_number_attr(arg.number_attr);
  def->set_is_ref(arg.is_ref);
}

pb::OpDef DefOf(const OpSchema& op) {
  pb::OpDef def;
  def.set_name(op.name);
  for (const OpArg& arg : op.inputs) Fill(arg, def.add_input_arg());
  for (const OpArg& arg : op.outputs) Fill(arg, def.add_output_arg());
  for (const OpAttr& attr : op.attrs) {
    pb::OpDef::AttrDef* const out = def.add_attr();
    out->set_name(attr.name);
    out->set_type(attr.type);
    if (attr.has_default) *out->mutable_default_value() = attr.default_value;
    out->set_has_minimum(attr.has_minimum);
    out->set_minimum(attr.minimum);
    for (const DType type : attr.allowed_types)
      out->mutable_allowed_values()->mutable_list()->add_type(static_cast<pb::DataType>(type));
    for (const std::string& text : attr.allowed_strings) out->mutable_allowed_values()->mutable_list()->add_s(text);
  }
  def.set_is_commutative(op.is_commutative);
  def.set_is_stateful(op.is_stateful);
  def.set_allows_uninitialized_input(op.allows_uninitialized_input);
  return def;
}

}  // namespace

void DescribeOps(pb::MetaGraphDef* meta) {
  std::set<std::string> used;
  ForEachNode(meta->mutable_graph_def(), [&](pb::NodeDef* node) { used.insert(node->op()); });
  pb::OpList* const list = meta->mutable_meta_info_def()->mutable_stripped_op_list();
  list->Clear();
  for (const std::string& name : used) {
    if (const OpSchema* op = OpRegistry::Global().FindOrNull(name)) *list->add_op() = DefOf(*op);
  }
  pb::VersionDef* const versions = meta->mutable_graph_def()->mutable_versions();
  if (versions->producer() == 0) versions->set_producer(kGraphVersion);
}

void StripDefaultAttrs(pb::MetaGraphDef* meta) {
  ForEachNode(meta->mutable_graph_def(), [](pb::NodeDef* node) {
    const OpSchema* const op = OpRegistry::Global().FindOrNull(node->op());
    if (op == nullptr) return;
    for (const OpAttr& attr : op->attrs) {
      const auto found = node->attr().find(attr.name);
      if (attr.has_default && found != node->attr().end() && Equal(found->second, attr.default_value))
        node->mutable_attr()->erase(attr.name);
    }
  });
  meta->mutable_meta_info_def()->set_stripped_default_attrs(true);
}

void RemoveNewDefaultAttrs(pb::MetaGraphDef* meta) {
  std::map<std::string, const pb::OpDef*> producer;
  for (const pb::OpDef& op : meta->meta_info_def().stripped_op_list().op()) producer[op.name()] = &op;
  ForEachNode(meta->mutable_graph_def(), [&](pb::NodeDef* node) {
    const OpSchema* const op = OpRegistry::Global().FindOrNull(node->op());
    const auto theirs = producer.find(node->op());
    if (op == nullptr || theirs == producer.end()) return;
    for (const pb::OpDef::AttrDef& attr : theirs->second->attr()) {
      if (!attr.has_default_value() || op->FindAttr(attr.name()) != nullptr) continue;
      const auto found = node->attr().find(attr.name());
      if (found != node->attr().end() && Equal(found->second, attr.default_value()))
        node->mutable_attr()->erase(attr.name());
    }
  });
}

}  // namespace millrace
