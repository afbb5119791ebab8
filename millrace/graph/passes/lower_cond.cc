#include "millrace/graph/passes/lower_calls.h"

namespace millrace {
namespace {

// Lowers one If or Case.
class CondLowering {
 public:
  CondLowering(BodySplicer& splicer, const BodySplicer::Call& call)
      : splicer_(splicer), call_(call), node_(*call.node), is_case_(node_.op().call_kind == CallKind::kCase) {}

  StatusOr<bool> Run() {
    MR_RETURN_IF_ERROR(FindBranches());
    for (Branch& branch : branches_) {
      if (!splicer_.MayInline(branch.function, call_.caller)) return false;
      MR_RETURN_IF_ERROR(Flatten(branch));
    }
    splicer_.set_has_control_flow();
    MR_RETURN_IF_ERROR(AddSwitches());
    results_.resize(node_.num_outputs());
    for (size_t b = 0; b < branches_.size(); ++b) MR_RETURN_IF_ERROR(AddBranch(static_cast<int>(b)));
    MR_RETURN_IF_ERROR(MergeBranches());
    return true;
  }

 private:
  struct Branch {
    std::string name;
    pb::NameAttrList function;
    FlatFunction flat = {};
  };

  // In the order of the Switch's outputs: 0 is the false branch.
  Status FindBranches() {
    if (is_case_) {
      for (const pb::NameAttrList& f : node_.FindAttr("branches")->list().func()) {
        branches_.push_back({absl::StrCat("branch_", branches_.size()), f});
      }
      return absl::OkStatus();
    }
    for (const char* side : {"else", "then"}) {
      MR_ASSIGN_OR_RETURN(auto f, node_.Attr<pb::NameAttrList>(absl::StrCat(side, "_branch")));
      branches_.push_back({side, std::move(f)});
    }
    return absl::OkStatus();
  }

  Status Flatten(Branch& branch) {
    MR_ASSIGN_OR_RETURN(branch.flat, FlattenFunction(*splicer_.graph(), branch.function));
    if (static_cast<int>(branch.flat.rets.size()) != node_.num_outputs()) {
      return InvalidArgument("function '", branch.flat.name, "' gives ", branch.flat.rets.size(),
                             " results, but the node has ", node_.num_outputs(), " outputs");
    }
    return absl::OkStatus();
  }

  StatusOr<Node*> AddSwitch(Endpoint data, absl::string_view name) {
    const std::vector<Node*> before(node_.control_inputs().begin(), node_.control_inputs().end());
    if (!is_case_) return splicer_.Add(call_, "Switch", name, {data, selector_}, {}, before);
    const auto num_outs = static_cast<int64_t>(branches_.size());
    return splicer_.Add(call_, "_SwitchN", name, {data, selector_}, {{"num_outs", num_outs}}, before);
  }

  Status AddSwitches() {
    selector_ = splicer_.Resolved(node_.input(0));
    if (!is_case_ && (BaseType(selector_.dtype()) != DType::kBool || selector_.shape().rank() != 0)) {
      MR_ASSIGN_OR_RETURN(Node * truth, splicer_.Add(call_, "ToBool", "cond", {selector_}));
      selector_ = truth->output(0);
    }
    for (int i = 1; i < node_.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(switches_.emplace_back(),
                          AddSwitch(splicer_.Resolved(node_.input(i)), absl::StrCat("switch_", i - 1)));
    }
    MR_ASSIGN_OR_RETURN(pivot_, AddSwitch(selector_, "pivot"));
    return absl::OkStatus();
  }

  Status AddBranch(int b) {
    const Branch& branch = branches_[b];
    MR_ASSIGN_OR_RETURN(Node * taken,
                        splicer_.Add(call_, "Identity", absl::StrCat(branch.name, "_pivot"), {pivot_->output(b)}));
    std::vector<BodySplicer::Argument> args;
    for (Node* s : switches_) args.push_back({s->output(b), true});
    MR_ASSIGN_OR_RETURN(const BodySplicer::Spliced body,
                        splicer_.Splice(call_, branch.flat, absl::StrCat(node_.name(), "/", branch.name), args,
                                        [&]() -> StatusOr<Node*> { return taken; }));
    for (size_t r = 0; r < body.rets.size(); ++r) results_[r].push_back(body.rets[r]);
    // Without side effects there is nothing to wait for beyond the choice of the branch; results carry their own data
    // edges.
    if (body.effects.empty() && !results_.empty()) {
      ran_.push_back(taken->output(0));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Node * end, splicer_.Add(call_, "Identity", absl::StrCat(branch.name, "_done"),
                                                 {taken->output(0)}, {}, body.effects));
    ran_.push_back(end->output(0));
    return absl::OkStatus();
  }

  Status MergeBranches() {
    std::vector<Endpoint> rets;
    std::vector<Node*> done;
    for (size_t r = 0; r < results_.size(); ++r) {
      MR_ASSIGN_OR_RETURN(Node * merge, splicer_.Add(call_, "Merge", absl::StrCat("merge_", r), results_[r]));
      rets.push_back(merge->output(0));
      done.push_back(merge);
    }
    MR_ASSIGN_OR_RETURN(Node * end, splicer_.Add(call_, "Merge", "done", ran_));
    done.push_back(end);
    return splicer_.Finish(call_, std::move(rets), done);
  }

  BodySplicer& splicer_;
  const BodySplicer::Call& call_;
  const Node& node_;
  const bool is_case_;
  std::vector<Branch> branches_;
  Endpoint selector_;
  std::vector<Node*> switches_;                 // by argument
  Node* pivot_ = nullptr;                       // says which branch is taken
  std::vector<std::vector<Endpoint>> results_;  // by output and branch
  std::vector<Endpoint> ran_;                   // by branch
};

}  // namespace

StatusOr<bool> LowerCond(BodySplicer& splicer, const BodySplicer::Call& call) {
  return CondLowering(splicer, call).Run();
}

}  // namespace millrace
