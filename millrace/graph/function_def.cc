#include "absl/container/flat_hash_map.h"
#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// "node:output:index", the notation of FunctionDef.
std::string TensorOf(const Endpoint& e) {
  if (e.node->is_type("_Arg")) return e.node->name();
  int first = 0;
  for (const OpArg& arg : e.node->op().outputs) {
    int64_t count = 1;
    if (!arg.type_list_attr.empty()) {
      count = e.node->FindAttr(arg.type_list_attr)->list().type_size();
    } else if (!arg.number_attr.empty()) {
      count = e.node->FindAttr(arg.number_attr)->i();
    }
    if (e.index < first + count) return absl::StrCat(e.node->name(), ":", arg.name, ":", e.index - first);
    first += static_cast<int>(count);
  }
  return e.name();
}

}  // namespace

StatusOr<pb::FunctionDef> DefineFunction(const FunctionBody& body) {
  pb::FunctionDef def;
  pb::OpDef& signature = *def.mutable_signature();
  signature.set_name(body.name);
  for (size_t i = 0; i < body.args.size(); ++i) {
    auto* arg = signature.add_input_arg();
    arg->set_name(body.args[i]->name());
    arg->set_type(static_cast<pb::DataType>(body.args[i]->output_type(0)));
    if (const pb::AttrValue* shapes = body.args[i]->FindAttr("_output_shapes")) {
      (*(*def.mutable_arg_attr())[static_cast<uint32_t>(i)].mutable_attr())["_output_shapes"] = *shapes;
    }
  }
  for (const Node* node : body.graph->nodes()) {
    if (node->is_type("_Arg")) continue;
    pb::NodeDef& copy = *def.add_node_def();
    copy = ExportNodeDef(*node);
    copy.clear_input();
    for (const Endpoint& e : node->inputs()) copy.add_input(TensorOf(e));
    for (const Node* before : node->control_inputs()) copy.add_input(absl::StrCat("^", before->name()));
    if (HasSideEffect(node->op())) signature.set_is_stateful(true);
  }
  for (size_t i = 0; i < body.rets.size(); ++i) {
    auto* out = signature.add_output_arg();
    out->set_name(absl::StrCat("result_", i));
    out->set_type(static_cast<pb::DataType>(BaseType(body.rets[i].dtype())));
    (*def.mutable_ret())[out->name()] = TensorOf(body.rets[i]);
  }
  for (const Node* node : body.control_rets) {
    (*def.mutable_control_ret())[node->name()] = node->name();
    signature.add_control_output(node->name());
  }
  MR_RETURN_IF_ERROR(CheckFunction(def));
  return def;
}

}  // namespace millrace
