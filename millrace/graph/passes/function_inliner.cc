#include "millrace/graph/passes/function_inliner.h"

#include <algorithm>

#include "absl/strings/match.h"
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

}  // namespace

bool FunctionInliner::IsCall(const Node& node) { return node.op().call_kind != CallKind::kNone; }

Status FunctionInliner::ExpandAll() {
  for (Node* node : graph_->nodes()) {
    has_control_flow_ |= node->IsControlFlow();
    if (IsCall(*node)) calls_.push_back({node, -1, false});
  }
  if (calls_.empty()) return absl::OkStatus();
  if (context_ != nullptr) {
    absl::flat_hash_set<const Node*> kept;
    for (const Endpoint& e : context_->fetches) kept.insert(e.node);
    for (const Node* node : context_->targets) kept.insert(node);
    for (Call& call : calls_) call.keep = kept.contains(call.node);
  }
  return Drain();
}

Status FunctionInliner::ExpandInPlace(absl::Span<Node* const> calls) {
  for (Node* node : graph_->nodes()) has_control_flow_ |= node->IsControlFlow();
  for (Node* node : calls) calls_.push_back({node, -1, true});
  return Drain();
}

Status FunctionInliner::Drain() {
  for (size_t head = 0; head < calls_.size(); ++head) {
    const Call call = calls_[head];
    StatusOr<bool> done = Expand(call);
    if (!done.ok()) {
      if (absl::StrContains(done.status().message(), absl::StrCat("{{node ", call.node->name(), "}}")))
        return done.status();
      return WithPrefix(absl::StrCat("{{node ", call.node->name(), "}} (op ", call.node->type(), "): "), done.status());
    }
  }
  Rewire();
  return absl::OkStatus();
}

StatusOr<bool> FunctionInliner::Expand(const Call& call) {
  switch (call.node->op().call_kind) {
    case CallKind::kNone:
      return false;
    case CallKind::kFunction:
      return ExpandCall(call);
    case CallKind::kGradient:
      return ExpandGradient(call);
    case CallKind::kIf:
    case CallKind::kCase:
      return ExpandCond(call);
    case CallKind::kWhile:
      return ExpandWhile(call);
  }
  return false;
}

bool FunctionInliner::MayInline(const pb::NameAttrList& function, int caller) const {
  if (graph_->num_nodes() > kMaxNodes) return false;
  int depth = 0;
  for (int at = caller; at >= 0; at = callers_[at].outer) {
    if (callers_[at].function == function.name() || ++depth > kMaxDepth) return false;
  }
  return true;
}

StatusOr<Node*> FunctionInliner::Add(const Call& call, absl::string_view op, absl::string_view name,
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

Endpoint FunctionInliner::Resolved(Endpoint e) const {
  for (auto it = results_.find(e); it != results_.end(); it = results_.find(e)) e = it->second;
  return e;
}

StatusOr<Node*> FunctionInliner::AliveWith(const Call& call, Endpoint e) {
  if (!e.node->IsSwitch()) return e.node;
  return Add(call, "Identity", "alive", {e});
}

StatusOr<FunctionInliner::Spliced> FunctionInliner::Splice(const Call& call, const FlatFunction& flat,
                                                           const std::string& prefix, absl::Span<const Argument> args,
                                                           Gate gate) {
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
  absl::flat_hash_map<absl::string_view, int> arg_of;
  for (size_t i = 0; i < flat.arg_names.size(); ++i) arg_of.emplace(flat.arg_names[i], static_cast<int>(i));
  absl::flat_hash_map<absl::string_view, std::string> renamed;
  for (const pb::NodeDef& node : flat.nodes) {
    renamed.emplace(node.name(), graph_->UniqueName(absl::StrCat(prefix, "/", node.name())));
  }
  Node* gate_node = nullptr;
  const auto need_gate = [&]() -> StatusOr<Node*> {
    if (gate_node == nullptr) {
      MR_ASSIGN_OR_RETURN(gate_node, gate());
    }
    return gate_node;
  };
  pb::GraphDef def;
  for (const pb::NodeDef& original : flat.nodes) {
    pb::NodeDef& node = *def.add_node();
    node = original;
    node.clear_input();
    node.set_name(renamed.at(original.name()));
    if (node.device().empty()) node.set_device(call.node->requested_device());
    bool gated = false;
    std::vector<std::string> waits;
    for (absl::string_view input : original.input()) {
      const bool is_control = absl::ConsumePrefix(&input, "^");
      const auto [name, slot] = SplitTensor(input);
      if (const auto it = arg_of.find(name); it != arg_of.end()) {
        const Argument& arg = args[it->second];
        gated |= arg.gates;
        if (!is_control) {
          node.add_input(TensorName(arg.value));
        } else {
          MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(call, arg.value));
          if (!alive->is_detached()) waits.push_back(absl::StrCat("^", alive->name()));
        }
        continue;
      }
      const auto it = renamed.find(name);
      if (it == renamed.end())
        return InvalidArgument("function '", flat.name, "': '", input, "' is not one of its nodes");
      gated = true;
      if (is_control) {
        waits.push_back(absl::StrCat("^", it->second));
      } else {
        node.add_input(absl::StrCat(it->second, slot));
      }
    }
    if (!gated) {
      MR_ASSIGN_OR_RETURN(Node * before, need_gate());
      if (before != nullptr) waits.push_back(absl::StrCat("^", before->name()));
    }
    for (std::string& wait : waits) node.add_input(std::move(wait));
    // Frame names and colocation groups of the body are made unique per copy.
    if (auto it = node.mutable_attr()->find("frame_name"); it != node.mutable_attr()->end()) {
      it->second.set_s(absl::StrCat(prefix, "/", it->second.s()));
    }
    if (auto it = node.mutable_attr()->find("_class"); it != node.mutable_attr()->end()) {
      for (std::string& with : *it->second.mutable_list()->mutable_s()) {
        absl::string_view name = with;
        if (!absl::ConsumePrefix(&name, "loc:@")) continue;
        if (const auto node_it = renamed.find(name); node_it != renamed.end()) {
          with = absl::StrCat("loc:@", node_it->second);
        } else if (const auto arg_it = arg_of.find(name); arg_it != arg_of.end()) {
          with = absl::StrCat("loc:@", args[arg_it->second].value.node->name());
        }
      }
    }
  }
  const size_t first = graph_->nodes().size(), first_call = calls_.size();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), graph_));
  callers_.push_back({flat.name, call.caller});
  const int caller = static_cast<int>(callers_.size()) - 1;
  bool has_switch = false;
  for (size_t i = first; i < first + flat.nodes.size(); ++i) {
    has_switch |= graph_->nodes()[i]->IsSwitch();
    has_control_flow_ |= graph_->nodes()[i]->IsControlFlow();
  }
  Spliced result;
  for (size_t i = first; i < first + flat.nodes.size(); ++i) {
    Node* node = graph_->nodes()[i];
    if (IsCall(*node)) calls_.push_back({node, caller, false});
    if (flat.control_rets.empty() && HasSideEffect(node->op())) {
      if (context_ != nullptr) context_->targets.push_back(node);
      if (IsCall(*node)) calls_.back().keep = true;
      // A node in a branch that is not taken never runs, so nothing can wait for it.
      if (!has_switch) result.effects.push_back(node);
    }
  }
  for (const std::string& name : flat.control_rets) {
    const auto it = renamed.find(name);
    if (it == renamed.end())
      return InvalidArgument("function '", flat.name, "': the control output '", name, "' is not one of its nodes");
    Node* node = graph_->FindNode(it->second);
    result.effects.push_back(node);
    if (context_ != nullptr) context_->targets.push_back(node);
    for (size_t c = first_call; c < calls_.size(); ++c) calls_[c].keep |= calls_[c].node == node;
  }
  result.done = result.effects;
  for (size_t r = 0; r < flat.rets.size(); ++r) {
    const auto [name, slot] = SplitTensor(flat.rets[r]);
    Endpoint ret;
    if (const auto it = arg_of.find(name); it != arg_of.end()) {
      ret = args[it->second].value;
      if (!args[it->second].gates) {
        MR_ASSIGN_OR_RETURN(Node * before, need_gate());
        if (before != nullptr) {
          MR_ASSIGN_OR_RETURN(Node * same, Add(call, "Identity", "ret", {ret}, {}, {before}));
          ret = same->output(0);
        }
      }
    } else {
      const auto node_it = renamed.find(name);
      if (node_it == renamed.end())
        return InvalidArgument("function '", flat.name, "': '", flat.rets[r], "' is not one of its tensors");
      MR_ASSIGN_OR_RETURN(ret, graph_->FindEndpoint(absl::StrCat(node_it->second, slot)));
    }
    if (BaseType(ret.dtype()) != BaseType(flat.ret_types[r])) {
      return InvalidArgument("function '", flat.name, "': result ", r, " is declared as ", DTypeName(flat.ret_types[r]),
                             " but ", ret.name(), " is ", DTypeName(ret.dtype()));
    }
    result.rets.push_back(ret);
  }
  return result;
}

StatusOr<bool> FunctionInliner::ExpandCall(const Call& call) {
  MR_ASSIGN_OR_RETURN(const auto f, call.node->Attr<pb::NameAttrList>("f"));
  if (!MayInline(f, call.caller)) return false;
  MR_ASSIGN_OR_RETURN(const FlatFunction flat, FlattenFunction(*graph_, f));
  std::vector<Argument> args;
  for (const Endpoint& e : call.node->inputs()) args.push_back({Resolved(e), false});
  // Nodes without inputs wait for the call's control inputs and, within a loop or a branch, for its arguments, whose
  // liveness decides whether the call runs.
  const auto gate = [&]() -> StatusOr<Node*> {
    std::vector<Node*> before(call.node->control_inputs().begin(), call.node->control_inputs().end());
    if (has_control_flow_) {
      for (const Argument& arg : args) {
        MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(call, arg.value));
        before.push_back(alive);
      }
    }
    if (before.empty()) return nullptr;
    return Add(call, "NoOp", "start", {}, {}, before);
  };
  MR_ASSIGN_OR_RETURN(Spliced body, Splice(call, flat, call.node->name(), args, gate));
  for (const Endpoint& ret : body.rets) {
    MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(call, ret));
    body.done.push_back(alive);
  }
  if (body.done.empty()) {
    MR_ASSIGN_OR_RETURN(Node * before, gate());
    if (before != nullptr) body.done.push_back(before);
  }
  MR_RETURN_IF_ERROR(Finish(call, std::move(body.rets), body.done));
  return true;
}

StatusOr<bool> FunctionInliner::ExpandGradient(const Call& call) {
  MR_ASSIGN_OR_RETURN(const auto f, call.node->Attr<pb::NameAttrList>("f"));
  pb::NameAttrList marker;  // marks a gradient within the gradient of the same function as recursion
  marker.set_name(absl::StrCat("gradient of ", f.name()));
  if (!MayInline(marker, call.caller)) return false;
  MR_ASSIGN_OR_RETURN(const FunctionBody gradient, GradientFunction(*graph_, f));
  FlatFunction flat = FlattenBody(gradient);
  flat.name = marker.name();
  std::vector<Argument> args;
  for (const Endpoint& e : call.node->inputs()) args.push_back({Resolved(e), false});
  const auto gate = [&]() -> StatusOr<Node*> {
    std::vector<Node*> before(call.node->control_inputs().begin(), call.node->control_inputs().end());
    for (const Argument& arg : args) {
      if (!has_control_flow_) break;
      MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(call, arg.value));
      before.push_back(alive);
    }
    if (before.empty()) return nullptr;
    return Add(call, "NoOp", "start", {}, {}, before);
  };
  MR_ASSIGN_OR_RETURN(Spliced body, Splice(call, flat, call.node->name(), args, gate));
  for (const Endpoint& ret : body.rets) {
    MR_ASSIGN_OR_RETURN(Node * alive, AliveWith(call, ret));
    body.done.push_back(alive);
  }
  MR_RETURN_IF_ERROR(Finish(call, std::move(body.rets), body.done));
  return true;
}

Status FunctionInliner::Finish(const Call& call, std::vector<Endpoint> rets, const std::vector<Node*>& done) {
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

void FunctionInliner::Rewire() {
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

Status InlineFunctions(Graph* graph, PassContext* context) { return FunctionInliner(graph, context).ExpandAll(); }

}  // namespace millrace
