// While as a loop of Enter, Merge, Switch, NextIteration and Exit.
#include "millrace/graph/passes/function_inliner.h"

namespace millrace {
namespace {

// True when a body hands argument i on as it came: the loop need not carry it.
bool IsInvariant(const FlatFunction& body, size_t i) {
  absl::string_view name = body.rets[i];
  for (size_t hops = 0; hops <= body.nodes.size(); ++hops) {
    name = name.substr(0, name.rfind(':'));
    if (name == body.arg_names[i]) return true;
    const pb::NodeDef* source = nullptr;
    for (const pb::NodeDef& node : body.nodes) {
      if (node.name() == name) source = &node;
    }
    if (source == nullptr || source->op() != "Identity" || source->input_size() != 1) return false;
    name = source->input(0);
  }
  return false;
}

}  // namespace

StatusOr<bool> FunctionInliner::ExpandWhile(const Call& call) {
  Node* node = call.node;
  MR_ASSIGN_OR_RETURN(const auto cond_name, node->Attr<pb::NameAttrList>("cond"));
  MR_ASSIGN_OR_RETURN(const auto body_name, node->Attr<pb::NameAttrList>("body"));
  if (!MayInline(cond_name, call.caller) || !MayInline(body_name, call.caller)) return false;
  MR_ASSIGN_OR_RETURN(const FlatFunction cond, FlattenFunction(*graph_, cond_name));
  MR_ASSIGN_OR_RETURN(const FlatFunction body, FlattenFunction(*graph_, body_name));
  if (cond.rets.size() != 1) {
    return InvalidArgument("the condition '", cond.name, "' must give one result but gives ", cond.rets.size());
  }
  const int n = node->num_inputs();
  if (static_cast<int>(body.rets.size()) != n || static_cast<int>(body.arg_names.size()) != n) {
    return InvalidArgument("the body '", body.name, "' takes ", body.arg_names.size(), " and gives ", body.rets.size(),
                           " values, but the loop has ", n);
  }
  for (int i = 0; i < n; ++i) {
    if (BaseType(body.ret_types[i]) != BaseType(node->input_type(i))) {
      return InvalidArgument("the body '", body.name, "' gives ", DTypeName(body.ret_types[i]), " for value ", i,
                             ", which is ", DTypeName(node->input_type(i)));
    }
  }
  has_control_flow_ = true;
  const std::vector<Node*> before(node->control_inputs().begin(), node->control_inputs().end());
  const std::string frame = absl::StrCat(node->name(), "/loop");
  const int64_t parallel = node->AttrOr<int64_t>("parallel_iterations", 10);
  const auto enter = [&](Endpoint value, bool constant) {
    return Add(call, "Enter", "enter", {value},
               {{"frame_name", frame}, {"is_constant", constant}, {"parallel_iterations", parallel}}, before);
  };
  // What changes from iteration to iteration; the rest is entered once for all.
  std::vector<int> carried;
  std::vector<Endpoint> in_cond(n), inputs(n);
  for (int i = 0; i < n; ++i) {
    inputs[i] = Resolved(node->input(i));
    if (IsInvariant(body, i)) {
      MR_ASSIGN_OR_RETURN(Node * constant, enter(inputs[i], true));
      in_cond[i] = constant->output(0);
    } else {
      carried.push_back(i);
    }
  }
  // A loop that carries nothing still needs something to go round.
  if (carried.empty()) {
    std::vector<Node*> alive = before;
    for (const Endpoint& e : inputs) {
      MR_ASSIGN_OR_RETURN(alive.emplace_back(), AliveWith(call, e));
    }
    MR_ASSIGN_OR_RETURN(Node * token, Add(call, "Const", "token", {},
                                          {{"dtype", DType::kBool}, {"value", Tensor::Scalar<bool>(true)}}, alive));
    inputs.push_back(token->output(0));
    in_cond.emplace_back();
    carried.push_back(n);
  }
  std::vector<Node*> merges;
  for (const int i : carried) {
    MR_ASSIGN_OR_RETURN(Node * first, enter(inputs[i], false));
    MR_ASSIGN_OR_RETURN(merges.emplace_back(), Add(call, "Merge", "merge", {first->output(0)}));
    in_cond[i] = merges.back()->output(0);
  }
  std::vector<Argument> args;
  for (int i = 0; i < n; ++i) args.push_back({in_cond[i], in_cond[i].node->IsMerge()});
  MR_ASSIGN_OR_RETURN(const Spliced test, Splice(call, cond, absl::StrCat(node->name(), "/cond"), args,
                                                 [&]() -> StatusOr<Node*> { return merges[0]; }));
  Endpoint truth = test.rets[0];
  // The result may be a call that is still to be expanded.
  if (BaseType(truth.dtype()) != DType::kBool || truth.shape().rank() != 0) {
    MR_ASSIGN_OR_RETURN(Node * to_bool, Add(call, "ToBool", "truth", {truth}));
    truth = to_bool->output(0);
  }
  MR_ASSIGN_OR_RETURN(Node * goes_on, Add(call, "LoopCond", "goes_on", {truth}, {}, test.effects));
  std::vector<Node*> switches;
  for (Node* merge : merges) {
    MR_ASSIGN_OR_RETURN(switches.emplace_back(), Add(call, "Switch", "switch", {merge->output(0), goes_on->output(0)}));
  }
  args.clear();
  for (int i = 0; i < n; ++i) args.push_back({in_cond[i], false});
  for (size_t c = 0; c < carried.size(); ++c) {
    if (carried[c] < n) args[carried[c]] = {switches[c]->output(1), true};
  }
  Node* pivot = nullptr;
  const auto body_pivot = [&]() -> StatusOr<Node*> {
    if (pivot == nullptr) {
      MR_ASSIGN_OR_RETURN(pivot, Add(call, "Identity", "body_pivot", {switches[0]->output(1)}));
    }
    return pivot;
  };
  MR_ASSIGN_OR_RETURN(const Spliced step, Splice(call, body, absl::StrCat(node->name(), "/body"), args, body_pivot));
  // The next iteration starts when this one's effects are there.
  std::vector<Endpoint> rets(n);
  std::vector<Node*> done;
  for (size_t c = 0; c < carried.size(); ++c) {
    const Endpoint next = carried[c] < n ? step.rets[carried[c]] : switches[c]->output(1);
    MR_ASSIGN_OR_RETURN(Node * next_iteration, Add(call, "NextIteration", "next", {next}, {}, step.effects));
    MR_RETURN_IF_ERROR(graph_->AddInput(merges[c], next_iteration->output(0)));
    MR_ASSIGN_OR_RETURN(Node * exit, Add(call, "Exit", "exit", {switches[c]->output(0)}));
    done.push_back(exit);
    if (carried[c] < n) rets[carried[c]] = exit->output(0);
  }
  // A handle that comes out of the loop stands for the loop having run.
  for (int i = 0; i < n; ++i) {
    if (rets[i]) continue;
    MR_ASSIGN_OR_RETURN(Node * same, Add(call, "Identity", "unchanged", {inputs[i]}, {}, {done[0]}));
    rets[i] = same->output(0);
  }
  MR_RETURN_IF_ERROR(Finish(call, std::move(rets), done));
  return true;
}

}  // namespace millrace
