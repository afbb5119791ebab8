#include "millrace/graph/function.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

constexpr char kByName[] = "_call_by_name";

Status FunctionError(absl::string_view function, const Status& status) {
  return WithPrefix(absl::StrCat("function '", function, "': "), status);
}

// Substitutes the function's attrs for the placeholders in a node's attr, including those in nested function attrs.
Status Substitute(const AttrMap& attrs, pb::AttrValue* value) {
  if (value->value_case() == pb::AttrValue::kPlaceholder) {
    const auto it = attrs.find(value->placeholder());
    if (it == attrs.end()) return NotFound("No attr named '", value->placeholder(), "' for the function");
    *value = it->second;
  } else if (value->has_func()) {
    for (auto& [name, inner] : *value->mutable_func()->mutable_attr()) MR_RETURN_IF_ERROR(Substitute(attrs, &inner));
  } else if (value->has_list()) {
    for (pb::NameAttrList& f : *value->mutable_list()->mutable_func()) {
      for (auto& [name, inner] : *f.mutable_attr()) MR_RETURN_IF_ERROR(Substitute(attrs, &inner));
    }
  }
  return absl::OkStatus();
}

// Where the outputs (or inputs) of each argument of a schema begin.
struct ArgRange {
  std::string name;
  int first = 0;
  int count = 0;
};

std::vector<ArgRange> Ranges(const OpSchema& op, const std::vector<OpArg>& args, const AttrMap& attrs) {
  std::vector<ArgRange> ranges;
  int next = 0;
  for (const OpArg& arg : args) {
    int count = 1;
    if (!arg.type_list_attr.empty()) {
      count = FindAttr(op, attrs, arg.type_list_attr)->list().type_size();
    } else if (!arg.number_attr.empty()) {
      count = static_cast<int>(FindAttr(op, attrs, arg.number_attr)->i());
    }
    ranges.push_back({arg.name, next, count});
    next += count;
  }
  return ranges;
}

class Flattener {
 public:
  Flattener(const Graph& graph, const pb::FunctionDef& def, const AttrMap& attrs)
      : graph_(graph), def_(def), attrs_(attrs) {}

  StatusOr<FlatFunction> Run() {
    flat_.name = def_.signature().name();
    MR_ASSIGN_OR_RETURN(const OpSchema signature, SignatureSchema(def_.signature()));
    for (const OpAttr& attr : signature.attrs) {
      if (attr.has_default) attrs_.insert({attr.name, attr.default_value});
    }
    // Callers may pass attrs that the signature does not declare.
    AttrMap known;
    for (const OpAttr& attr : signature.attrs) {
      if (const auto it = attrs_.find(attr.name); it != attrs_.end()) known.insert({attr.name, it->second});
    }
    MR_RETURN_IF_ERROR(CheckAttrs(signature, known));
    absl::InlinedVector<DType, 4> ins;
    absl::InlinedVector<DType, 2> outs;
    MR_RETURN_IF_ERROR(ResolveTypes(signature, known, static_cast<int>(kMaxOutputs), &ins, &outs));
    flat_.arg_types.assign(ins.begin(), ins.end());
    flat_.ret_types.assign(outs.begin(), outs.end());
    AddArgs(Ranges(signature, signature.inputs, known));
    for (const pb::NodeDef& node : def_.node_def()) {
      if (Status s = AddNode(node); !s.ok()) return WithNode(node, s);
    }
    for (int i = 0; i < def_.node_def_size(); ++i) {
      if (Status s = AddInputs(def_.node_def(i), &flat_.nodes[i]); !s.ok()) return WithNode(def_.node_def(i), s);
    }
    MR_RETURN_IF_ERROR(AddRets(Ranges(signature, signature.outputs, known)));
    for (const auto& [name, node] : def_.control_ret()) flat_.control_rets.push_back(node);
    std::sort(flat_.control_rets.begin(), flat_.control_rets.end());
    return std::move(flat_);
  }

 private:
  static Status WithNode(const pb::NodeDef& node, const Status& status) {
    return WithPrefix(absl::StrCat("{{node ", node.name(), "}} (op ", node.op(), "): "), status);
  }

  void AddArgs(const std::vector<ArgRange>& ranges) {
    for (size_t a = 0; a < ranges.size(); ++a) {
      const AttrMap* attrs = nullptr;
      if (auto it = def_.arg_attr().find(static_cast<uint32_t>(a)); it != def_.arg_attr().end()) {
        attrs = &it->second.attr();
      }
      const bool is_list = def_.signature().input_arg(static_cast<int>(a)).number_attr().size() +
                               def_.signature().input_arg(static_cast<int>(a)).type_list_attr().size() >
                           0;
      std::vector<std::string> names;
      for (int i = 0; i < ranges[a].count; ++i) {
        names.push_back(is_list ? absl::StrCat(ranges[a].name, "_arg_", i) : ranges[a].name);
        flat_.arg_names.push_back(names.back());
        flat_.arg_attrs.push_back(attrs);
      }
      args_.emplace(ranges[a].name, std::move(names));
    }
  }

  Status AddNode(const pb::NodeDef& def) {
    pb::NodeDef node = def;
    node.clear_input();
    for (auto& [name, value] : *node.mutable_attr()) {
      if (Status s = Substitute(attrs_, &value); !s.ok()) return WithPrefix(absl::StrCat("attr '", name, "': "), s);
    }
    const OpSchema* op = OpRegistry::Global().FindOrNull(node.op());
    if (op != nullptr) {
      MR_RETURN_IF_ERROR(CheckOutputCounts(*op, node.attr()));
      outputs_[node.name()] = Ranges(*op, op->outputs, node.attr());
    } else if (const pb::FunctionDef* called = graph_.FindFunction(node.op())) {
      MR_ASSIGN_OR_RETURN(const OpSchema schema, SignatureSchema(called->signature()));
      MR_RETURN_IF_ERROR(CheckOutputCounts(schema, node.attr()));
      outputs_[node.name()] = Ranges(schema, schema.outputs, node.attr());
    } else {
      return OpRegistry::Global().Find(node.op()).status();
    }
    flat_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  // Ranges relies on the attrs checked here; everything else is checked at import.
  static Status CheckOutputCounts(const OpSchema& op, const AttrMap& attrs) {
    for (const OpArg& arg : op.outputs) {
      const std::string& name = arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
      if (name.empty()) continue;
      const pb::AttrValue* value = FindAttr(op, attrs, name);
      if (value == nullptr) return NotFound("No attr named '", name, "' in the node");
      if (const OpAttr* declared = op.FindAttr(name)) MR_RETURN_IF_ERROR(CheckAttr(*declared, *value));
      if (value->i() > kMaxOutputs) return InvalidArgument("attr '", name, "' asks for ", value->i(), " outputs");
    }
    return absl::OkStatus();
  }

  // The tensors that "arg", "arg:1", "node:output" or "node:output:1" refers to.
  Status Resolve(absl::string_view text, std::vector<std::string>* tensors) const {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
    int index = -1;
    const auto take = [&](const std::vector<std::string>& all) -> Status {
      if (index >= static_cast<int>(all.size()))
        return InvalidArgument("input '", text, "' names no tensor of the function");
      if (index >= 0) {
        tensors->push_back(all[index]);
      } else {
        tensors->insert(tensors->end(), all.begin(), all.end());
      }
      return absl::OkStatus();
    };
    const bool last_is_index = parts.size() > 1 && absl::SimpleAtoi(parts.back(), &index) && index >= 0;
    if (const auto it = args_.find(parts[0]); it != args_.end()) {
      if (parts.size() > 2 || (parts.size() == 2 && !last_is_index)) {
        return InvalidArgument("input '", text, "' names no tensor of the function");
      }
      return take(it->second);
    }
    const auto it = outputs_.find(parts[0]);
    if (it == outputs_.end() || parts.size() > 3 || (parts.size() == 3 && !last_is_index)) {
      return InvalidArgument("input '", text, "' names no node or argument of the function");
    }
    std::vector<std::string> all;
    const bool plain = parts.size() == 1 || (parts.size() == 2 && last_is_index);  // "node", "node:1"
    bool found = plain;
    for (const ArgRange& range : it->second) {
      if (!plain && range.name != parts[1]) continue;
      found = true;
      for (int i = 0; i < range.count; ++i) all.push_back(absl::StrCat(parts[0], ":", range.first + i));
    }
    if (!found) return InvalidArgument("input '", text, "': the node has no output '", parts[1], "'");
    if (parts.size() == 1) index = 0;
    return take(all);
  }

  Status AddInputs(const pb::NodeDef& def, pb::NodeDef* node) {
    for (const std::string& input : def.input()) {
      if (absl::StartsWith(input, "^")) {
        node->add_input(input);
        continue;
      }
      std::vector<std::string> tensors;
      MR_RETURN_IF_ERROR(Resolve(input, &tensors));
      for (std::string& t : tensors) node->add_input(std::move(t));
    }
    return absl::OkStatus();
  }

  Status AddRets(const std::vector<ArgRange>& ranges) {
    for (const ArgRange& range : ranges) {
      const auto it = def_.ret().find(range.name);
      if (it == def_.ret().end()) return InvalidArgument("nothing is returned for the output '", range.name, "'");
      const size_t before = flat_.rets.size();
      if (Status s = Resolve(it->second, &flat_.rets); !s.ok()) {
        return WithPrefix(absl::StrCat("output '", range.name, "': "), s);
      }
      if (static_cast<int>(flat_.rets.size() - before) != range.count) {
        return InvalidArgument("output '", range.name, "' has ", range.count, " tensors, but '", it->second, "' gives ",
                               flat_.rets.size() - before);
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const pb::FunctionDef& def_;
  AttrMap attrs_;
  FlatFunction flat_;
  absl::flat_hash_map<std::string, std::vector<std::string>> args_;
  absl::flat_hash_map<std::string, std::vector<ArgRange>> outputs_;
};

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

StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::FunctionDef& def, const AttrMap& attrs) {
  StatusOr<FlatFunction> flat = Flattener(graph, def, attrs).Run();
  if (!flat.ok()) return FunctionError(def.signature().name(), flat.status());
  return flat;
}

StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::NameAttrList& function) {
  const pb::FunctionDef* def = graph.FindFunction(function.name());
  if (def == nullptr) return NotFound("Function '", function.name(), "' is not defined in the graph's library");
  return FlattenFunction(graph, *def, function.attr());
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

bool IsCalledByName(const Node& node) { return node.attrs().contains(kByName); }

void NameFunctionAsOp(pb::NodeDef* def) {
  AttrMap attrs = def->attr().at("f").func().attr();
  for (const auto& [name, value] : def->attr()) {
    if (absl::StartsWith(name, "_") && name != kByName) attrs[name] = value;
  }
  def->set_op(def->attr().at("f").func().name());
  def->mutable_attr()->swap(attrs);
}

}  // namespace millrace
