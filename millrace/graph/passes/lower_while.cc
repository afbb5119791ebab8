#include "millrace/graph/passes/lower_calls.h"

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

// Lowers one While. Members are in the order in which they are filled in. Values are indexed by the loop's inputs; a
// loop without loop variables has an additional one, the token.
class WhileLowering {
 public:
  WhileLowering(BodySplicer& splicer, const BodySplicer::Call& call) : splicer_(splicer), call_(call) {}

  StatusOr<bool> Run() {
    Node* const node = call_.node;
    MR_ASSIGN_OR_RETURN(const auto cond_name, node->Attr<pb::NameAttrList>("cond"));
    MR_ASSIGN_OR_RETURN(const auto body_name, node->Attr<pb::NameAttrList>("body"));
    if (!splicer_.MayInline(cond_name, call_.caller) || !splicer_.MayInline(body_name, call_.caller)) return false;
    MR_ASSIGN_OR_RETURN(cond_, FlattenFunction(*splicer_.graph(), cond_name));
    MR_ASSIGN_OR_RETURN(body_, FlattenFunction(*splicer_.graph(), body_name));
    num_values_ = node->num_inputs();
    before_.assign(node->control_inputs().begin(), node->control_inputs().end());
    MR_RETURN_IF_ERROR(Check());
    splicer_.set_has_control_flow();
    MR_RETURN_IF_ERROR(EnterLoop());
    MR_RETURN_IF_ERROR(AddCondition());
    MR_ASSIGN_OR_RETURN(const BodySplicer::Spliced step, AddBody());
    MR_RETURN_IF_ERROR(LeaveLoop(step));
    return true;
  }

 private:
  Status Check() const {
    const Node& node = *call_.node;
    const FlatFunction& body = body_;
    if (cond_.rets.size() != 1) {
      return InvalidArgument("Expected a single scalar return value from the condition '", cond_.name,
                             "' of a loop, got ", cond_.rets.size(), " tensors.");
    }
    const int n = num_values_;
    if (static_cast<int>(body.rets.size()) != n || static_cast<int>(body.arg_names.size()) != n) {
      return InvalidArgument("While loop body returned ", body.rets.size(), " arguments. Expected: ", n, " (function '",
                             body.name, "', which takes ", body.arg_names.size(), ")");
    }
    for (int i = 0; i < n; ++i) {
      if (BaseType(body.ret_types[i]) != BaseType(node.input_type(i))) {
        return InvalidArgument("the body '", body.name, "' gives ", DTypeName(body.ret_types[i]), " for value ", i,
                               ", which is ", DTypeName(node.input_type(i)));
      }
    }
    return absl::OkStatus();
  }

  StatusOr<Node*> AddEnter(Endpoint value, bool constant) {
    const Node& node = *call_.node;
    return splicer_.Add(call_, "Enter", "enter", {value},
                        {{"frame_name", node.name()},
                         {"is_constant", constant},
                         {"parallel_iterations", node.AttrOr<int64_t>("parallel_iterations", 10)}},
                        before_);
  }

  Status EnterLoop() {
    const int n = num_values_;
    in_cond_.resize(n);
    inputs_.resize(n);
    for (int i = 0; i < n; ++i) {
      inputs_[i] = splicer_.Resolved(call_.node->input(i));
      if (!IsInvariant(body_, i)) {
        carried_.push_back(i);
        continue;
      }
      MR_ASSIGN_OR_RETURN(Node * constant, AddEnter(inputs_[i], true));
      in_cond_[i] = constant->output(0);
    }
    if (carried_.empty()) MR_RETURN_IF_ERROR(CarryToken());
    for (const int i : carried_) {
      MR_ASSIGN_OR_RETURN(Node * first, AddEnter(inputs_[i], false));
      MR_ASSIGN_OR_RETURN(merges_.emplace_back(), splicer_.Add(call_, "Merge", "merge", {first->output(0)}));
      in_cond_[i] = merges_.back()->output(0);
    }
    return absl::OkStatus();
  }

  // Adds a loop variable, the token, to a loop that has none.
  Status CarryToken() {
    std::vector<Node*> alive = before_;
    for (const Endpoint& e : inputs_) {
      MR_ASSIGN_OR_RETURN(alive.emplace_back(), splicer_.AliveWith(call_, e));
    }
    MR_ASSIGN_OR_RETURN(Node * token,
                        splicer_.Add(call_, "Const", "token", {},
                                     {{"dtype", DType::kBool}, {"value", Tensor::Scalar<bool>(true)}}, alive));
    carried_.push_back(num_values_);
    inputs_.push_back(token->output(0));
    in_cond_.emplace_back();
    return absl::OkStatus();
  }

  Status AddCondition() {
    std::vector<BodySplicer::Argument> args;
    for (int i = 0; i < num_values_; ++i) args.push_back({in_cond_[i], in_cond_[i].node->IsMerge()});
    MR_ASSIGN_OR_RETURN(const BodySplicer::Spliced test,
                        splicer_.Splice(call_, cond_, absl::StrCat(call_.node->name(), "/cond"), args,
                                        [&]() -> StatusOr<Node*> { return merges_[0]; }));
    Endpoint truth = test.rets[0];
    // The result may come from a call that is not expanded yet.
    if (BaseType(truth.dtype()) != DType::kBool || truth.shape().rank() != 0) {
      MR_ASSIGN_OR_RETURN(Node * to_bool, splicer_.Add(call_, "ToBool", "truth", {truth}));
      truth = to_bool->output(0);
    }
    MR_ASSIGN_OR_RETURN(Node * goes_on, splicer_.Add(call_, "LoopCond", "goes_on", {truth}, {}, test.effects));
    for (Node* merge : merges_) {
      MR_ASSIGN_OR_RETURN(switches_.emplace_back(),
                          splicer_.Add(call_, "Switch", "switch", {merge->output(0), goes_on->output(0)}));
    }
    return absl::OkStatus();
  }

  StatusOr<BodySplicer::Spliced> AddBody() {
    std::vector<BodySplicer::Argument> args;
    for (int i = 0; i < num_values_; ++i) args.push_back({in_cond_[i], false});
    for (size_t c = 0; c < carried_.size(); ++c) {
      if (carried_[c] < num_values_) args[carried_[c]] = {switches_[c]->output(1), true};
    }
    Node* pivot = nullptr;
    const auto body_pivot = [&]() -> StatusOr<Node*> {
      if (pivot == nullptr) {
        MR_ASSIGN_OR_RETURN(pivot, splicer_.Add(call_, "Identity", "body_pivot", {switches_[0]->output(1)}));
      }
      return pivot;
    };
    return splicer_.Splice(call_, body_, absl::StrCat(call_.node->name(), "/body"), args, body_pivot);
  }

  Status LeaveLoop(const BodySplicer::Spliced& step) {
    std::vector<Endpoint> rets(num_values_);
    std::vector<Node*> done;
    for (size_t c = 0; c < carried_.size(); ++c) {
      const int i = carried_[c];
      // The next iteration starts when the side effects of this one are complete.
      const Endpoint next = i < num_values_ ? step.rets[i] : switches_[c]->output(1);
      MR_ASSIGN_OR_RETURN(Node * next_iteration,
                          splicer_.Add(call_, "NextIteration", "next", {next}, {}, step.effects));
      MR_RETURN_IF_ERROR(splicer_.graph()->AddInput(merges_[c], next_iteration->output(0)));
      MR_ASSIGN_OR_RETURN(Node * exit, splicer_.Add(call_, "Exit", "exit", {switches_[c]->output(0)}));
      done.push_back(exit);
      if (i < num_values_) rets[i] = exit->output(0);
    }
    // A handle that leaves the loop signals that the loop has run.
    for (int i = 0; i < num_values_; ++i) {
      if (rets[i]) continue;
      MR_ASSIGN_OR_RETURN(Node * same, splicer_.Add(call_, "Identity", "unchanged", {inputs_[i]}, {}, {done[0]}));
      rets[i] = same->output(0);
    }
    return splicer_.Finish(call_, std::move(rets), done);
  }

  BodySplicer& splicer_;
  const BodySplicer::Call& call_;
  FlatFunction cond_, body_;
  int num_values_ = 0;
  std::vector<Node*> before_;  // the control inputs of the call
  std::vector<Endpoint> inputs_;
  std::vector<Endpoint> in_cond_;  // the values within the loop, before its condition
  std::vector<int> carried_;       // the loop variables; all other values are entered as constants
  // Indexed like `carried_`.
  std::vector<Node*> merges_, switches_;
};

}  // namespace

StatusOr<bool> LowerWhile(BodySplicer& splicer, const BodySplicer::Call& call) {
  return WhileLowering(splicer, call).Run();
}

}  // namespace millrace
