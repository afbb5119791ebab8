// From a FunctionDef, with its placeholders and lists of tensors, to a FlatFunction.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/graph/function.h"
#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

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

}  // namespace

StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::FunctionDef& def, const AttrMap& attrs) {
  StatusOr<FlatFunction> flat = Flattener(graph, def, attrs).Run();
  if (!flat.ok()) return WithPrefix(absl::StrCat("function '", def.signature().name(), "': "), flat.status());
  return flat;
}

StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::NameAttrList& function) {
  const pb::FunctionDef* def = graph.FindFunction(function.name());
  if (def == nullptr) return NotFound("Function '", function.name(), "' is not defined in the graph's library");
  return FlattenFunction(graph, *def, function.attr());
}

}  // namespace millrace
