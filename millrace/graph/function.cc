#include "millrace/graph/function.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

constexpr char kByName[] = "_call_by_name";

Status FunctionError(absl::string_view function, const Status& status) {
  return WithPrefix(absl::StrCat("function '", function, "': "), status);
}

OpArg ArgOf(const pb::OpDef::ArgDef& def) {
  OpArg arg;
  arg.name = def.name();
  arg.type = static_cast<DType>(def.type());
  arg.type_attr = def.type_attr();
  arg.type_list_attr = def.type_list_attr();
  arg.number_attr = def.number_attr();
  arg.is_ref = def.is_ref();
  return arg;
}

Status CheckArg(const OpSchema& schema, const OpArg& arg) {
  for (const auto& [attr, type] :
       {std::pair{arg.type_attr, "type"}, {arg.type_list_attr, "list(type)"}, {arg.number_attr, "int"}}) {
    if (attr.empty()) continue;
    const OpAttr* declared = schema.FindAttr(attr);
    if (declared == nullptr || declared->type != type) {
      return InvalidArgument("argument '", arg.name, "' depends on the attr '", attr, "', which is not declared as ",
                             type);
    }
  }
  if (arg.type == DType::kInvalid && arg.type_attr.empty() && arg.type_list_attr.empty()) {
    return InvalidArgument("argument '", arg.name, "' has no type");
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<OpSchema> SignatureSchema(const pb::OpDef& signature) {
  OpSchema schema;
  schema.name = signature.name();
  schema.is_stateful = signature.is_stateful();
  for (const auto& def : signature.attr()) {
    OpAttr attr;
    attr.name = def.name();
    attr.type = def.type();
    attr.has_default = def.has_default_value();
    attr.default_value = def.default_value();
    attr.has_minimum = def.has_minimum();
    attr.minimum = def.minimum();
    for (int t : def.allowed_values().list().type()) attr.allowed_types.push_back(static_cast<DType>(t));
    for (const std::string& s : def.allowed_values().list().s()) attr.allowed_strings.push_back(s);
    schema.attrs.push_back(std::move(attr));
  }
  for (const auto& arg : signature.input_arg()) schema.inputs.push_back(ArgOf(arg));
  for (const auto& arg : signature.output_arg()) schema.outputs.push_back(ArgOf(arg));
  for (const OpArg& arg : schema.inputs) MR_RETURN_IF_ERROR(CheckArg(schema, arg));
  for (const OpArg& arg : schema.outputs) MR_RETURN_IF_ERROR(CheckArg(schema, arg));
  return schema;
}

StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const FlatFunction& flat) {
  pb::GraphDef def;
  for (size_t i = 0; i < flat.arg_names.size(); ++i) {
    pb::NodeDef* arg = def.add_node();
    if (flat.arg_attrs.size() > i && flat.arg_attrs[i] != nullptr) {
      for (const auto& [name, value] : *flat.arg_attrs[i]) {
        if (absl::StartsWith(name, "_")) (*arg->mutable_attr())[name] = value;
      }
    }
    arg->set_name(flat.arg_names[i]);
    arg->set_op("_Arg");
    (*arg->mutable_attr())["T"].set_type(static_cast<pb::DataType>(flat.arg_types[i]));
    (*arg->mutable_attr())["index"].set_i(static_cast<int64_t>(i));
  }
  for (const pb::NodeDef& node : flat.nodes) *def.add_node() = node;
  FunctionBody body;
  body.name = flat.name;
  body.graph = std::make_unique<Graph>();
  body.graph->ShareLibrary(graph);
  body.graph->set_versions(graph.versions());
  if (Status s = ImportGraphDef(std::move(def), body.graph.get()); !s.ok()) return FunctionError(flat.name, s);
  for (const std::string& name : flat.arg_names) body.args.push_back(body.graph->FindNode(name));
  for (size_t i = 0; i < flat.rets.size(); ++i) {
    StatusOr<Endpoint> ret = body.graph->FindEndpoint(flat.rets[i]);
    if (!ret.ok()) return FunctionError(flat.name, ret.status());
    if (BaseType(ret->dtype()) != BaseType(flat.ret_types[i])) {
      return FunctionError(flat.name, InvalidArgument("result ", i, " is declared as ", DTypeName(flat.ret_types[i]),
                                                      " but ", ret->name(), " is ", DTypeName(ret->dtype())));
    }
    body.rets.push_back(*ret);
  }
  for (const std::string& name : flat.control_rets) {
    Node* node = body.graph->FindNode(name);
    if (node == nullptr)
      return FunctionError(flat.name, InvalidArgument("the control output '", name, "' is not one of its nodes"));
    body.control_rets.push_back(node);
  }
  return body;
}

StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const pb::NameAttrList& function) {
  const OpSchema* op = OpRegistry::Global().FindOrNull(function.name());
  if (op == nullptr || graph.FindFunction(function.name()) != nullptr) {
    MR_ASSIGN_OR_RETURN(const FlatFunction flat, FlattenFunction(graph, function));
    return InstantiateFunction(graph, flat);
  }
  FlatFunction flat;
  flat.name = function.name();
  MR_RETURN_IF_ERROR(CheckAttrs(*op, function.attr()));
  absl::InlinedVector<DType, 4> ins;
  absl::InlinedVector<DType, 2> outs;
  MR_RETURN_IF_ERROR(ResolveTypes(*op, function.attr(), static_cast<int>(kMaxOutputs), &ins, &outs));
  flat.arg_types.assign(ins.begin(), ins.end());
  flat.ret_types.assign(outs.begin(), outs.end());
  pb::NodeDef node;
  node.set_name("op");
  node.set_op(function.name());
  *node.mutable_attr() = function.attr();
  for (size_t i = 0; i < ins.size(); ++i) {
    flat.arg_names.push_back(absl::StrCat("arg_", i));
    node.add_input(flat.arg_names.back());
  }
  for (size_t i = 0; i < outs.size(); ++i) flat.rets.push_back(absl::StrCat("op:", i));
  flat.nodes.push_back(std::move(node));
  return InstantiateFunction(graph, flat);
}

FlatFunction FlattenBody(const FunctionBody& body) {
  FlatFunction flat;
  flat.name = body.name;
  for (const Node* arg : body.args) {
    flat.arg_names.push_back(arg->name());
    flat.arg_types.push_back(arg->output_type(0));
  }
  for (const Node* node : body.graph->nodes()) {
    if (!node->is_type("_Arg")) flat.nodes.push_back(ExportNodeDef(*node));
  }
  for (const Endpoint& ret : body.rets) {
    flat.rets.push_back(ret.name());
    flat.ret_types.push_back(BaseType(ret.dtype()));
  }
  for (const Node* node : body.control_rets) flat.control_rets.push_back(node->name());
  return flat;
}

bool HasSideEffect(const OpSchema& op) {
  return op.is_stateful && !op.Has(OpTrait::kReadsVariable) && !op.Has(OpTrait::kRandom) &&
         !op.Has(OpTrait::kFunctionBorder);
}

std::vector<Node*> SideEffects(const FunctionBody& body) {
  if (!body.control_rets.empty()) return body.control_rets;
  std::vector<Node*> effects;
  for (Node* node : body.graph->nodes()) {
    if (HasSideEffect(node->op())) effects.push_back(node);
  }
  return effects;
}

Status CheckFunction(const pb::FunctionDef& def) {
  const auto check = [&]() -> Status {
    if (def.signature().name().empty()) return InvalidArgument("it has no name");
    MR_RETURN_IF_ERROR(SignatureSchema(def.signature()).status());
    absl::flat_hash_set<absl::string_view> args, nodes;
    for (const auto& arg : def.signature().input_arg()) {
      if (!args.insert(arg.name()).second) return InvalidArgument("two arguments are called '", arg.name(), "'");
    }
    for (const pb::NodeDef& node : def.node_def()) {
      if (!nodes.insert(node.name()).second || args.contains(node.name())) {
        return InvalidArgument("two nodes or arguments are called '", node.name(), "'");
      }
    }
    const auto known = [&](absl::string_view text) {
      const absl::string_view name = text.substr(0, text.find(':'));
      return args.contains(name) || nodes.contains(name);
    };
    for (const pb::NodeDef& node : def.node_def()) {
      for (absl::string_view input : node.input()) {
        if (!known(absl::StripPrefix(input, "^"))) {
          return InvalidArgument("{{node ", node.name(), "}} (op ", node.op(), "): input '", input,
                                 "' names no node or argument of the function");
        }
      }
    }
    for (const auto& out : def.signature().output_arg()) {
      const auto it = def.ret().find(out.name());
      if (it == def.ret().end()) return InvalidArgument("nothing is returned for the output '", out.name(), "'");
      if (!known(it->second)) {
        return InvalidArgument("the output '", out.name(), "' is '", it->second, "', which names no node or argument");
      }
    }
    for (const auto& [name, node] : def.control_ret()) {
      if (!nodes.contains(node))
        return InvalidArgument("the control output '", name, "' is '", node, "', which names no node");
    }
    return absl::OkStatus();
  };
  if (Status s = check(); !s.ok()) return FunctionError(def.signature().name(), s);
  return absl::OkStatus();
}

Status CallByName(const pb::FunctionDef& function, pb::NodeDef* def) {
  MR_ASSIGN_OR_RETURN(const OpSchema schema, SignatureSchema(function.signature()));
  AttrMap given;
  for (const OpAttr& attr : schema.attrs) {
    if (const auto it = def->attr().find(attr.name); it != def->attr().end()) given.insert({attr.name, it->second});
  }
  MR_RETURN_IF_ERROR(CheckAttrs(schema, given));
  absl::InlinedVector<DType, 4> ins;
  absl::InlinedVector<DType, 2> outs;
  MR_RETURN_IF_ERROR(ResolveTypes(schema, given, static_cast<int>(kMaxOutputs), &ins, &outs));
  bool stateful = function.signature().is_stateful();
  for (const pb::NodeDef& node : function.node_def()) {
    const OpSchema* op = OpRegistry::Global().FindOrNull(node.op());
    stateful |= op == nullptr || op->is_stateful;
  }
  AttrMap attrs;
  for (auto& [name, value] : *def->mutable_attr()) {
    if (absl::StartsWith(name, "_")) attrs[name] = value;
  }
  pb::NameAttrList* f = attrs["f"].mutable_func();
  f->set_name(def->op());
  *f->mutable_attr() = std::move(given);
  auto* tin = attrs["Tin"].mutable_list();
  auto* tout = attrs["Tout"].mutable_list();
  for (const DType t : ins) tin->add_type(static_cast<pb::DataType>(t));
  for (const DType t : outs) tout->add_type(static_cast<pb::DataType>(t));
  attrs[kByName].set_b(true);
  def->set_op(stateful ? "StatefulPartitionedCall" : "PartitionedCall");
  def->mutable_attr()->swap(attrs);
  return absl::OkStatus();
}

bool IsCalledByName(const Node& node) {
  return node.op().call_kind == CallKind::kFunction && node.attrs().contains(kByName);
}

void ForgetCallByName(pb::NodeDef* def) { def->mutable_attr()->erase(kByName); }

void NameFunctionAsOp(pb::NodeDef* def) {
  AttrMap attrs = def->attr().at("f").func().attr();
  for (const auto& [name, value] : def->attr()) {
    if (absl::StartsWith(name, "_") && name != kByName) attrs[name] = value;
  }
  def->set_op(def->attr().at("f").func().name());
  def->mutable_attr()->swap(attrs);
}

}  // namespace millrace
