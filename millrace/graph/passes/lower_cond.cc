// Lowers If and Case to Switch and Merge.
#include "millrace/graph/passes/function_inliner.h"

namespace millrace {

StatusOr<bool> FunctionInliner::ExpandCond(const Call& call) {
  Node* node = call.node;
  const bool is_case = node->op().call_kind == CallKind::kCase;
  // Indexed by the Switch's output: 0 is the false branch.
  std::vector<pb::NameAttrList> branches;
  std::vector<std::string> names;
  if (is_case) {
    const pb::AttrValue* list = node->FindAttr("branches");
    for (const pb::NameAttrList& f : list->list().func()) {
      names.push_back(absl::StrCat("branch_", branches.size()));
      branches.push_back(f);
    }
  } else {
    for (const char* side : {"else", "then"}) {
      MR_ASSIGN_OR_RETURN(branches.emplace_back(), node->Attr<pb::NameAttrList>(absl::StrCat(side, "_branch")));
      names.push_back(side);
    }
  }
  std::vector<FlatFunction> flats;
  for (const pb::NameAttrList& f : branches) {
    if (!MayInline(f, call.caller)) return false;
    MR_ASSIGN_OR_RETURN(FlatFunction flat, FlattenFunction(*graph_, f));
    if (static_cast<int>(flat.rets.size()) != node->num_outputs()) {
      return InvalidArgument("function '", flat.name, "' gives ", flat.rets.size(), " results, but the node has ",
                             node->num_outputs(), " outputs");
    }
    flats.push_back(std::move(flat));
  }
  has_control_flow_ = true;
  const std::vector<Node*> before(node->control_inputs().begin(), node->control_inputs().end());
  Endpoint selector = Resolved(node->input(0));
  if (!is_case && (BaseType(selector.dtype()) != DType::kBool || selector.shape().rank() != 0)) {
    MR_ASSIGN_OR_RETURN(Node * truth, Add(call, "ToBool", "cond", {selector}));
    selector = truth->output(0);
  }
  const auto add_switch = [&](Endpoint data, absl::string_view name) -> StatusOr<Node*> {
    if (!is_case) return Add(call, "Switch", name, {data, selector}, {}, before);
    return Add(call, "_SwitchN", name, {data, selector}, {{"num_outs", static_cast<int64_t>(branches.size())}}, before);
  };
  std::vector<Node*> switches;
  for (int i = 1; i < node->num_inputs(); ++i) {
    MR_ASSIGN_OR_RETURN(switches.emplace_back(), add_switch(Resolved(node->input(i)), absl::StrCat("switch_", i - 1)));
  }
  MR_ASSIGN_OR_RETURN(Node * pivot, add_switch(selector, "pivot"));
  std::vector<std::vector<Endpoint>> results(node->num_outputs());
  std::vector<Endpoint> ran;
  for (size_t b = 0; b < branches.size(); ++b) {
    const int side = static_cast<int>(b);
    MR_ASSIGN_OR_RETURN(Node * taken, Add(call, "Identity", absl::StrCat(names[b], "_pivot"), {pivot->output(side)}));
    std::vector<Argument> args;
    for (Node* s : switches) args.push_back({s->output(side), true});
    MR_ASSIGN_OR_RETURN(Spliced body, Splice(call, flats[b], absl::StrCat(node->name(), "/", names[b]), args,
                                             [&]() -> StatusOr<Node*> { return taken; }));
    for (size_t r = 0; r < body.rets.size(); ++r) results[r].push_back(body.rets[r]);
    // Without side effects there is nothing to wait for beyond the choice of the branch; results carry their own data
    // edges.
    if (!body.effects.empty() || results.empty()) {
      MR_ASSIGN_OR_RETURN(Node * end,
                          Add(call, "Identity", absl::StrCat(names[b], "_done"), {taken->output(0)}, {}, body.effects));
      ran.push_back(end->output(0));
    } else {
      ran.push_back(taken->output(0));
    }
  }
  std::vector<Endpoint> rets;
  std::vector<Node*> done;
  for (size_t r = 0; r < results.size(); ++r) {
    MR_ASSIGN_OR_RETURN(Node * merge, Add(call, "Merge", absl::StrCat("merge_", r), results[r]));
    rets.push_back(merge->output(0));
    done.push_back(merge);
  }
  MR_ASSIGN_OR_RETURN(Node * end, Add(call, "Merge", "done", ran));
  done.push_back(end);
  MR_RETURN_IF_ERROR(Finish(call, std::move(rets), done));
  return true;
}

}  // namespace millrace
