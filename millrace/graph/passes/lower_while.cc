// Lowers While to a loop of Enter, Merge, Switch, NextIteration and Exit.
#include "millrace/graph/passes/function_inliner.h"

namespace millrace {
namespace {

// True if the body returns argument i unchanged, so that it need not be a loop variable.
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

// A loop under construction; members are in the order in which they are filled in. Values are indexed by the loop's
// inputs; a loop without loop variables has an additional one, the token.
struct FunctionInliner::WhileLoop {
  const Call& call;
  FlatFunction cond = {}, body = {};
  int num_values = 0;
  std::vector<Node*> before = {};  // the control inputs of the call
  std::vector<Endpoint> inputs = {};
  std::vector<Endpoint> in_cond = {};  // the values within the loop, before its condition
  std::vector<int> carried = {};       // the loop variables; all other values are entered as constants
  // Indexed like `carried`.
  std::vector<Node*> merges = {}, switches = {};
};

Status FunctionInliner::CheckWhile(const WhileLoop& loop) const {
  const Node& node = *loop.call.node;
  const FlatFunction& body = loop.body;
  if (loop.cond.rets.size() != 1) {
    return InvalidArgument("the condition '", loop.cond.name, "' must give one result but gives ",
                           loop.cond.rets.size());
  }
  const int n = loop.num_values;
  if (static_cast<int>(body.rets.size()) != n || static_cast<int>(body.arg_names.size()) != n) {
    return InvalidArgument("the body '", body.name, "' takes ", body.arg_names.size(), " and gives ", body.rets.size(),
                           " values, but the loop has ", n);
  }
  for (int i = 0; i < n; ++i) {
    if (BaseType(body.ret_types[i]) != BaseType(node.input_type(i))) {
      return InvalidArgument("the body '", body.name, "' gives ", DTypeName(body.ret_types[i]), " for value ", i,
                             ", which is ", DTypeName(node.input_type(i)));
    }
  }
  return absl::OkStatus();
}

StatusOr<Node*> FunctionInliner::AddEnter(const WhileLoop& loop, Endpoint value, bool constant) {
  const Node& node = *loop.call.node;
  return Add(loop.call, "Enter", "enter", {value},
             {{"frame_name", absl::StrCat(node.name(), "/loop")},
              {"is_constant", constant},
              {"parallel_iterations", node.AttrOr<int64_t>("parallel_iterations", 10)}},
             loop.before);
}

Status FunctionInliner::EnterWhile(WhileLoop& loop) {
  const int n = loop.num_values;
  loop.in_cond.resize(n);
  loop.inputs.resize(n);
  for (int i = 0; i < n; ++i) {
    loop.inputs[i] = Resolved(loop.call.node->input(i));
    if (!IsInvariant(loop.body, i)) {
      loop.carried.push_back(i);
      continue;
    }
    MR_ASSIGN_OR_RETURN(Node * constant, AddEnter(loop, loop.inputs[i], true));
    loop.in_cond[i] = constant->output(0);
  }
  if (loop.carried.empty()) MR_RETURN_IF_ERROR(CarryToken(loop));
  for (const int i : loop.carried) {
    MR_ASSIGN_OR_RETURN(Node * first, AddEnter(loop, loop.inputs[i], false));
    MR_ASSIGN_OR_RETURN(loop.merges.emplace_back(), Add(loop.call, "Merge", "merge", {first->output(0)}));
    loop.in_cond[i] = loop.merges.back()->output(0);
  }
  return absl::OkStatus();
}

Status FunctionInliner::CarryToken(WhileLoop& loop) {
  std::vector<Node*> alive = loop.before;
  for (const Endpoint& e : loop.inputs) {
    MR_ASSIGN_OR_RETURN(alive.emplace_back(), AliveWith(loop.call, e));
  }
  MR_ASSIGN_OR_RETURN(Node * token, Add(loop.call, "Const", "token", {},
                                        {{"dtype", DType::kBool}, {"value", Tensor::Scalar<bool>(true)}}, alive));
  loop.carried.push_back(loop.num_values);
  loop.inputs.push_back(token->output(0));
  loop.in_cond.emplace_back();
  return absl::OkStatus();
}

Status FunctionInliner::TestWhile(WhileLoop& loop) {
  std::vector<Argument> args;
  for (int i = 0; i < loop.num_values; ++i) args.push_back({loop.in_cond[i], loop.in_cond[i].node->IsMerge()});
  MR_ASSIGN_OR_RETURN(const Spliced test, Splice(loop.call, loop.cond, absl::StrCat(loop.call.node->name(), "/cond"),
                                                 args, [&]() -> StatusOr<Node*> { return loop.merges[0]; }));
  Endpoint truth = test.rets[0];
  // The result may come from a call that is not expanded yet.
  if (BaseType(truth.dtype()) != DType::kBool || truth.shape().rank() != 0) {
    MR_ASSIGN_OR_RETURN(Node * to_bool, Add(loop.call, "ToBool", "truth", {truth}));
    truth = to_bool->output(0);
  }
  MR_ASSIGN_OR_RETURN(Node * goes_on, Add(loop.call, "LoopCond", "goes_on", {truth}, {}, test.effects));
  for (Node* merge : loop.merges) {
    MR_ASSIGN_OR_RETURN(loop.switches.emplace_back(),
                        Add(loop.call, "Switch", "switch", {merge->output(0), goes_on->output(0)}));
  }
  return absl::OkStatus();
}

StatusOr<FunctionInliner::Spliced> FunctionInliner::AddWhileBody(WhileLoop& loop) {
  std::vector<Argument> args;
  for (int i = 0; i < loop.num_values; ++i) args.push_back({loop.in_cond[i], false});
  for (size_t c = 0; c < loop.carried.size(); ++c) {
    if (loop.carried[c] < loop.num_values) args[loop.carried[c]] = {loop.switches[c]->output(1), true};
  }
  Node* pivot = nullptr;
  const auto body_pivot = [&]() -> StatusOr<Node*> {
    if (pivot == nullptr) {
      MR_ASSIGN_OR_RETURN(pivot, Add(loop.call, "Identity", "body_pivot", {loop.switches[0]->output(1)}));
    }
    return pivot;
  };
  return Splice(loop.call, loop.body, absl::StrCat(loop.call.node->name(), "/body"), args, body_pivot);
}

Status FunctionInliner::LeaveWhile(const WhileLoop& loop, const Spliced& step) {
  std::vector<Endpoint> rets(loop.num_values);
  std::vector<Node*> done;
  for (size_t c = 0; c < loop.carried.size(); ++c) {
    const int i = loop.carried[c];
    // The next iteration starts when the side effects of this one are complete.
    const Endpoint next = i < loop.num_values ? step.rets[i] : loop.switches[c]->output(1);
    MR_ASSIGN_OR_RETURN(Node * next_iteration, Add(loop.call, "NextIteration", "next", {next}, {}, step.effects));
    MR_RETURN_IF_ERROR(graph_->AddInput(loop.merges[c], next_iteration->output(0)));
    MR_ASSIGN_OR_RETURN(Node * exit, Add(loop.call, "Exit", "exit", {loop.switches[c]->output(0)}));
    done.push_back(exit);
    if (i < loop.num_values) rets[i] = exit->output(0);
  }
  // A handle that leaves the loop signals that the loop has run.
  for (int i = 0; i < loop.num_values; ++i) {
    if (rets[i]) continue;
    MR_ASSIGN_OR_RETURN(Node * same, Add(loop.call, "Identity", "unchanged", {loop.inputs[i]}, {}, {done[0]}));
    rets[i] = same->output(0);
  }
  return Finish(loop.call, std::move(rets), done);
}

StatusOr<bool> FunctionInliner::ExpandWhile(const Call& call) {
  Node* const node = call.node;
  MR_ASSIGN_OR_RETURN(const auto cond_name, node->Attr<pb::NameAttrList>("cond"));
  MR_ASSIGN_OR_RETURN(const auto body_name, node->Attr<pb::NameAttrList>("body"));
  if (!MayInline(cond_name, call.caller) || !MayInline(body_name, call.caller)) return false;
  WhileLoop loop{.call = call};
  MR_ASSIGN_OR_RETURN(loop.cond, FlattenFunction(*graph_, cond_name));
  MR_ASSIGN_OR_RETURN(loop.body, FlattenFunction(*graph_, body_name));
  loop.num_values = node->num_inputs();
  loop.before.assign(node->control_inputs().begin(), node->control_inputs().end());
  MR_RETURN_IF_ERROR(CheckWhile(loop));
  has_control_flow_ = true;
  MR_RETURN_IF_ERROR(EnterWhile(loop));
  MR_RETURN_IF_ERROR(TestWhile(loop));
  MR_ASSIGN_OR_RETURN(const Spliced step, AddWhileBody(loop));
  MR_RETURN_IF_ERROR(LeaveWhile(loop, step));
  return true;
}

}  // namespace millrace
