#include "millrace/graph/passes/body_splicer.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// Above this many nodes calls are no longer inlined: nested functions that call others twice grow exponentially.
constexpr int kMaxNodes = 1 << 18;
constexpr int kMaxDepth = 200;

std::string TensorName(const Endpoint& e) { return e.index == 0 ? e.node->name() : e.name(); }

// "node:2" or "node".
std::pair<absl::string_view, absl::string_view> SplitTensor(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon)};
}

// Control edges from fed nodes are dropped.
std::vector<Node*> WithoutFed(std::vector<Node*> nodes) {
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), [](const Node* node) { return node->is_detached(); }),
              nodes.end());
  return nodes;
}

Status CheckArguments(const FlatFunction& flat, absl::Span<const BodySplicer::Argument> args) {
  if (args.size() != flat.arg_names.size()) {
    return InvalidArgument("function '", flat.name, "' takes ", flat.arg_names.size(), " arguments, ", args.size(),
                           " were given");
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (BaseType(args[i].value.dtype()) != BaseType(flat.arg_types[i])) {
      return InvalidArgument("argument ", i, " of function '", flat.name, "' is ", DTypeName(flat.arg_types[i]),
                             " but ", args[i].value.name(), " is ", DTypeName(args[i].value.dtype()));
    }
  }
  return absl::OkStatus();
}

// TensorFlow replaces a conditional or a loop with this attr by its body before it prunes the graph, so that of the
// side effects of the body those alone remain that a result needs or that the function declares as control outputs.
bool PrunesEffects(const Node& call) {
  switch (call.op().call_kind) {
    case CallKind::kIf:
    case CallKind::kCase:
    case CallKind::kWhile:
      return call.AttrOr<bool>("_lower_using_switch_merge", false);
    default:
      return false;
  }
}

}  // namespace

struct BodySplicer::Copy {
  const Call& call;
  const FlatFunction& flat;
  const std::string& prefix;
  absl::Span<const Argument> args;
  Gate gate;
  absl::flat_hash_map<absl::string_view, int> arg_of = {};           // by name in the body
  absl::flat_hash_map<absl::string_view, std::string> renamed = {};  // names in the graph, by those in the body
  Node* gate_node = nullptr;

  // Asks for the gate once, when a node needs it.
  StatusOr<Node*> NeedGate() {
    if (gate_node == nullptr) {
      MR_ASSIGN_OR_RETURN(gate_node, gate());
    }
    return gate_node;
  }
  const Argument* FindArgument(absl::string_view name) const {
    const auto it = arg_of.find(name);
    return it == arg_of.end() ? nullptr : &args[it->second];
  }

  // Frame names and colocation groups of the body are made unique per copy.
  void RenameGroups(pb::NodeDef* node) const {
    if (auto it = node->mutable_attr()->find("frame_name"); it != node->mutable_attr()->end()) {
      it->second.set_s(absl::StrCat(prefix, "/", it->second.s()));
    }
    const auto groups = node->mutable_attr()->find("_class");
    if (groups == node->mutable_attr()->end()) return;
    for (std::string& with : *groups->second.mutable_list()->mutable_s()) {
      absl::string_view name = with;
      if (!absl::ConsumePrefix(&name, "loc:@")) continue;
      if (const auto it = renamed.find(name); it != renamed.end()) {
        with = absl::StrCat("loc:@", it->second);
      } else if (const Argument* arg = FindArgument(name); arg != nullptr) {
        with = absl::StrCat("loc:@", arg->value.node->name());
      }
    }
  }
};

bool BodySplicer::MayInline(const pb::NameAttrList& function, int caller) const {
  if (graph_->num_nodes() > kMaxNodes) return false;
  int depth = 0;
  for (int at = caller; at >= 0; at = callers_[at].outer) {
    if (callers_[at].function == function.name() || ++depth > kMaxDepth) return false;
  }
  return true;
}

StatusOr<Node*> BodySplicer::Add(const Call& call, absl::string_view op, absl::string_view name,
                                 std::vector<Endpoint> inputs, AttrList attrs, std::vector<Node*> control_inputs) {
  NodeSpec spec;
  spec.name = graph_->UniqueName(absl::StrCat(call.node->name(), "/", name));
  spec.op = std::string(op);
  spec.inputs = std::move(inputs);
  spec.control_inputs = WithoutFed(std::move(control_inputs));
  spec.device = call.node->requested_device();
  for (auto& [key, value] : attrs) spec.attrs[key] = value.value();
  return graph_->AddNode(std::move(spec));
}

Endpoint BodySplicer::Resolved(Endpoint e) const {
  for (auto it = results_.find(e); it != results_.end(); it = results_.find(e)) e = it->second;
  return e;
}

StatusOr<Node*> BodySplicer::AliveWith(const Call& call, Endpoint e) {
  if (!e.node->IsSwitch()) return e.node;
  return Add(call, "Identity", "alive", {e});
}

Status BodySplicer::CopyNode(Copy& copy, const pb::NodeDef& original, pb::NodeDef* node) {
  *node = original;
  node->clear_input();
  node->set_name(copy.renamed.at(original.name()));
  if (node->device().empty()) node->set_device(copy.call.node->requested_device());
  // A node does not run if one of its inputs is dead. A call is replaced by nodes that use some of its inputs each, so
  // that one input that is always alive, such as a loop's invariant, needs the gate.
  const OpSchema* const schema = OpRegistry::Global().FindOrNull(original.op());
  const bool is_call = schema != nullptr && schema->call_kind != CallKind::kNone;
  bool any_gates = false, all_gate = true;
  std::vector<std::string> waits;
  for (absl::string_view input : original.input()) {
    const bool is_control = absl::ConsumePrefix(&input, "^");
    const auto [name, slot] = SplitTensor(input);
    if (const Argument* arg = copy.FindArgument(name); arg != nullptr) {
      any_gates |= arg->gates;
      all_gate &= arg->gates || is_control;
      if (!is_control) {
        node->add_input(TensorName(arg->value));
      } else {
        MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(copy.call, arg->value));
        if (!alive->is_detached()) waits.push_back(absl::StrCat("^", alive->name()));
      }
      continue;
    }
    const auto it = copy.renamed.find(name);
    if (it == copy.renamed.end())
      return InvalidArgument("function '", copy.flat.name, "': '", input, "' is not one of its nodes");
    any_gates = true;
    if (is_control) {
      waits.push_back(absl::StrCat("^", it->second));
    } else {
      node->add_input(absl::StrCat(it->second, slot));
    }
  }
  if (!any_gates || (is_call && !all_gate)) {
    MR_ASSIGN_OR_RETURN(Node * before, copy.NeedGate());
    if (before != nullptr) waits.push_back(absl::StrCat("^", before->name()));
  }
  for (std::string& wait : waits) node->add_input(std::move(wait));
  copy.RenameGroups(node);
  return absl::OkStatus();
}

Status BodySplicer::TakeIn(const Copy& copy, size_t first, Spliced* result) {
  const FlatFunction& flat = copy.flat;
  const size_t first_call = calls_.size();
  callers_.push_back({flat.name, copy.call.caller});
  const int caller = static_cast<int>(callers_.size()) - 1;
  const auto added = graph_->nodes().subspan(first, flat.nodes.size());
  const bool declared = !flat.control_rets.empty() || PrunesEffects(*copy.call.node);
  bool has_switch = false;
  for (const Node* node : added) {
    has_switch |= node->IsSwitch();
    has_control_flow_ |= node->IsControlFlow();
  }
  for (Node* node : added) {
    const bool is_call = node->op().call_kind != CallKind::kNone;
    if (is_call) calls_.push_back({node, caller, false});
    if (declared || !HasSideEffect(node->op())) continue;
    if (context_ != nullptr) context_->targets.push_back(node);
    if (is_call) calls_.back().keep = true;
    // A node in a branch that is not taken never runs, so nothing can wait for it.
    if (!has_switch) result->effects.push_back(node);
  }
  for (const std::string& name : flat.control_rets) {
    const auto it = copy.renamed.find(name);
    if (it == copy.renamed.end())
      return InvalidArgument("function '", flat.name, "': the control output '", name, "' is not one of its nodes");
    Node* node = graph_->FindNode(it->second);
    result->effects.push_back(node);
    if (context_ != nullptr) context_->targets.push_back(node);
    for (size_t c = first_call; c < calls_.size(); ++c) calls_[c].keep |= calls_[c].node == node;
  }
  return absl::OkStatus();
}

StatusOr<Endpoint> BodySplicer::Result(Copy& copy, size_t r) {
  const FlatFunction& flat = copy.flat;
  const auto [name, slot] = SplitTensor(flat.rets[r]);
  Endpoint ret;
  if (const Argument* arg = copy.FindArgument(name); arg != nullptr) {
    ret = arg->value;
    if (!arg->gates) {
      MR_ASSIGN_OR_RETURN(Node * before, copy.NeedGate());
      if (before != nullptr) {
        MR_ASSIGN_OR_RETURN(Node * same, Add(copy.call, "Identity", "ret", {ret}, {}, {before}));
        ret = same->output(0);
      }
    }
  } else {
    const auto it = copy.renamed.find(name);
    if (it == copy.renamed.end())
      return InvalidArgument("function '", flat.name, "': '", flat.rets[r], "' is not one of its tensors");
    MR_ASSIGN_OR_RETURN(ret, graph_->FindEndpoint(absl::StrCat(it->second, slot)));
  }
  if (BaseType(ret.dtype()) != BaseType(flat.ret_types[r])) {
    return InvalidArgument("function '", flat.name, "': result ", r, " is declared as ", DTypeName(flat.ret_types[r]),
                           " but ", ret.name(), " is ", DTypeName(ret.dtype()));
  }
  return ret;
}

StatusOr<BodySplicer::Spliced> BodySplicer::Splice(const Call& call, const FlatFunction& flat,
                                                   const std::string& prefix, absl::Span<const Argument> args,
                                                   Gate gate) {
  MR_RETURN_IF_ERROR(CheckArguments(flat, args));
  Copy copy{.call = call, .flat = flat, .prefix = prefix, .args = args, .gate = gate};
  for (size_t i = 0; i < flat.arg_names.size(); ++i) copy.arg_of.emplace(flat.arg_names[i], static_cast<int>(i));
  for (const pb::NodeDef& node : flat.nodes) {
    copy.renamed.emplace(node.name(), graph_->UniqueName(absl::StrCat(prefix, "/", node.name())));
  }
  pb::GraphDef def;
  for (const pb::NodeDef& node : flat.nodes) MR_RETURN_IF_ERROR(CopyNode(copy, node, def.add_node()));
  const size_t first = graph_->nodes().size();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), graph_));
  Spliced result;
  MR_RETURN_IF_ERROR(TakeIn(copy, first, &result));
  result.done = result.effects;
  for (size_t r = 0; r < flat.rets.size(); ++r) {
    MR_ASSIGN_OR_RETURN(result.rets.emplace_back(), Result(copy, r));
  }
  return result;
}

Status BodySplicer::Finish(const Call& call, std::vector<Endpoint> rets, const std::vector<Node*>& done) {
  Node* node = call.node;
  if (static_cast<int>(rets.size()) != node->num_outputs()) {
    return InvalidArgument("its function gives ", rets.size(), " results, but the node has ", node->num_outputs(),
                           " outputs");
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    if (BaseType(rets[i].dtype()) != node->output_type(static_cast<int>(i))) {
      return InvalidArgument("output ", i, " is ", DTypeName(node->output_type(static_cast<int>(i))),
                             " but its function gives ", DTypeName(rets[i].dtype()));
    }
  }
  if (!call.keep) {
    for (size_t i = 0; i < rets.size(); ++i) results_[node->output(static_cast<int>(i))] = rets[i];
    waits_[node] = WithoutFed(done);
    expanded_.insert(node);
    return absl::OkStatus();
  }
  NodeSpec spec;
  spec.op = rets.empty() ? "NoOp" : "IdentityN";
  spec.inputs = std::move(rets);
  spec.control_inputs = WithoutFed(done);
  spec.device = node->requested_device();
  return graph_->ReplaceNode(node, std::move(spec));
}

void BodySplicer::Rewire() {
  if (expanded_.empty()) return;
  for (Node* node : graph_->nodes()) {
    if (expanded_.contains(node)) continue;
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!expanded_.contains(node->input(i).node)) continue;
      graph_->SetInput(node, i, Resolved(node->input(i)));
    }
    // A replacement may itself be a call.
    for (;;) {
      const auto& controls = node->control_inputs();
      const auto call = std::find_if(controls.begin(), controls.end(), [&](Node* n) { return waits_.contains(n); });
      if (call == controls.end()) break;
      Node* const before = *call;
      graph_->RemoveControlInput(node, before);
      for (Node* instead : waits_.at(before)) graph_->AddControlInput(node, instead);
    }
  }
  if (context_ != nullptr) {
    std::erase_if(context_->targets, [&](Node* target) { return expanded_.contains(target); });
  }
  graph_->RemoveNodes([&](const Node* node) { return expanded_.contains(node); });
}

}  // namespace millrace
