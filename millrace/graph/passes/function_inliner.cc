#include "millrace/graph/passes/function_inliner.h"

#include "absl/strings/match.h"
#include "millrace/graph/passes/lower_calls.h"

namespace millrace {

namespace {

// A remote call whose target is a constant is a call on that device, wherever it is: its body is placed there and the
// graph is partitioned as if the user had written the body.
Status PlaceRemoteCalls(Graph* graph) {
  for (Node* node : graph->nodes()) {
    if (!node->is_type("RemoteCall")) continue;
    const Node* from = node->input(0).node;
    if (!from->is_type("Const") || from->is_detached()) continue;
    MR_ASSIGN_OR_RETURN(const Tensor target, from->Attr<Tensor>("value"));
    if (target.dtype() != DType::kString || target.num_elements() != 1) continue;
    NodeSpec spec;
    spec.op = "StatefulPartitionedCall";
    spec.inputs.assign(node->inputs().begin() + 1, node->inputs().end());
    spec.control_inputs.assign(node->control_inputs().begin(), node->control_inputs().end());
    spec.device = target.data<std::string>()[0];
    for (const char* name : {"f", "Tin", "Tout"}) spec.attrs[name] = *node->FindAttr(name);
    MR_RETURN_IF_ERROR(graph->ReplaceNode(node, std::move(spec)));
  }
  return absl::OkStatus();
}

}  // namespace

bool FunctionInliner::IsCall(const Node& node) { return node.op().call_kind != CallKind::kNone; }

Status FunctionInliner::ExpandAll() {
  MR_RETURN_IF_ERROR(PlaceRemoteCalls(graph_));
  std::vector<Call>& calls = splicer_.calls();
  for (Node* node : graph_->nodes()) {
    if (node->IsControlFlow()) splicer_.set_has_control_flow();
    if (IsCall(*node)) calls.push_back({node, -1, false});
  }
  if (calls.empty()) return absl::OkStatus();
  if (splicer_.has_control_flow()) {
    for (const Call& call : calls) MR_RETURN_IF_ERROR(WaitForAllInputs(call));
  }
  if (context_ != nullptr) {
    absl::flat_hash_set<const Node*> kept;
    for (const Endpoint& e : context_->fetches) kept.insert(e.node);
    for (const Node* node : context_->targets) kept.insert(node);
    for (Call& call : calls) call.keep = kept.contains(call.node);
  }
  return Drain();
}

Status FunctionInliner::WaitForAllInputs(const Call& call) {
  const std::vector<Endpoint> inputs(call.node->inputs().begin(), call.node->inputs().end());
  if (inputs.size() < 2) return absl::OkStatus();
  for (const Endpoint& e : inputs) {
    if (e.node->is_detached()) continue;
    MR_ASSIGN_OR_RETURN(Node * alive, splicer_.AliveWith(call, e));
    graph_->AddControlInput(call.node, alive);
  }
  return absl::OkStatus();
}

Status FunctionInliner::ExpandInPlace(absl::Span<Node* const> calls) {
  for (Node* node : graph_->nodes()) {
    if (node->IsControlFlow()) splicer_.set_has_control_flow();
  }
  for (Node* node : calls) splicer_.calls().push_back({node, -1, true});
  return Drain();
}

Status FunctionInliner::Drain() {
  for (size_t head = 0; head < splicer_.calls().size(); ++head) {
    const Call call = splicer_.calls()[head];
    StatusOr<bool> done = Expand(call);
    if (!done.ok()) {
      if (absl::StrContains(done.status().message(), absl::StrCat("{{node ", call.node->name(), "}}")))
        return done.status();
      return WithPrefix(absl::StrCat("{{node ", call.node->name(), "}} (op ", call.node->type(), "): "), done.status());
    }
  }
  splicer_.Rewire();
  return absl::OkStatus();
}

StatusOr<bool> FunctionInliner::Expand(const Call& call) {
  // A client may ask that a conditional or a loop is run by its kernel.
  if (!call.node->AttrOr<bool>("_lower_using_switch_merge", true)) return false;
  switch (call.node->op().call_kind) {
    case CallKind::kNone:
      return false;
    case CallKind::kFunction:
      return ExpandCall(call);
    case CallKind::kGradient:
      return ExpandGradient(call);
    case CallKind::kIf:
    case CallKind::kCase:
      return LowerCond(splicer_, call);
    case CallKind::kWhile:
      return LowerWhile(splicer_, call);
  }
  return false;
}

StatusOr<bool> FunctionInliner::ExpandCall(const Call& call) {
  MR_ASSIGN_OR_RETURN(const auto f, call.node->Attr<pb::NameAttrList>("f"));
  if (!splicer_.MayInline(f, call.caller)) return false;
  MR_ASSIGN_OR_RETURN(const FlatFunction flat, FlattenFunction(*graph_, f));
  MR_RETURN_IF_ERROR(Inline(call, flat));
  return true;
}

StatusOr<bool> FunctionInliner::ExpandGradient(const Call& call) {
  MR_ASSIGN_OR_RETURN(const auto f, call.node->Attr<pb::NameAttrList>("f"));
  pb::NameAttrList marker;  // marks a gradient within the gradient of the same function as recursion
  marker.set_name(absl::StrCat("gradient of ", f.name()));
  if (!splicer_.MayInline(marker, call.caller)) return false;
  MR_ASSIGN_OR_RETURN(const FunctionBody gradient, GradientFunction(*graph_, f));
  FlatFunction flat = FlattenBody(gradient);
  flat.name = marker.name();
  MR_RETURN_IF_ERROR(Inline(call, flat));
  return true;
}

Status FunctionInliner::Inline(const Call& call, const FlatFunction& flat) {
  std::vector<BodySplicer::Argument> args;
  for (const Endpoint& e : call.node->inputs()) args.push_back({splicer_.Resolved(e), false});
  // Nodes without inputs wait for the call's control inputs and, within a loop or a branch, for its arguments, whose
  // liveness decides whether the call runs.
  const auto gate = [&]() -> StatusOr<Node*> {
    std::vector<Node*> before(call.node->control_inputs().begin(), call.node->control_inputs().end());
    if (splicer_.has_control_flow()) {
      for (const BodySplicer::Argument& arg : args) {
        MR_ASSIGN_OR_RETURN(Node * alive, splicer_.AliveWith(call, arg.value));
        before.push_back(alive);
      }
    }
    if (before.empty()) return nullptr;
    return splicer_.Add(call, "NoOp", "start", {}, {}, before);
  };
  MR_ASSIGN_OR_RETURN(BodySplicer::Spliced body, splicer_.Splice(call, flat, call.node->name(), args, gate));
  for (const Endpoint& ret : body.rets) {
    MR_ASSIGN_OR_RETURN(Node * alive, splicer_.AliveWith(call, ret));
    body.done.push_back(alive);
  }
  if (body.done.empty()) {
    MR_ASSIGN_OR_RETURN(Node * before, gate());
    if (before != nullptr) body.done.push_back(before);
  }
  return splicer_.Finish(call, std::move(body.rets), body.done);
}

Status InlineFunctions(Graph* graph, PassContext* context) { return FunctionInliner(graph, context).ExpandAll(); }

}  // namespace millrace
