// Values of a forward loop that its backward loop needs.
//
// The values that an iteration needs are saved together, in one history: a loop variable of the forward loop and then
// of the backward one. A history is an ordinary value, so nested loops need no special handling: the inner loop's
// history is among the values that the outer loop saves.
#include <algorithm>
#include <cstring>

#include "millrace/graph/backward.h"

namespace millrace {
namespace {

// A placeholder of that type for iterations in which a value does not exist.
Endpoint Stand(GraphBuilder& b, DType dtype) {
  if (dtype == DType::kVariant) return b.Op("_EmptyHistory", std::vector<Endpoint>{});
  Tensor t(dtype, Shape());
  if (IsPlain(dtype)) std::memset(t.raw_data(), 0, t.TotalBytes());
  return b.Const(t);
}

// Adds a Switch for another value of the same branch.
Node* AddGate(GraphBuilder& b, const CondPaths::Step& step, Endpoint data, Endpoint selector) {
  if (!step.gate->is_type("_SwitchN")) return b.AddNode("Switch", {data, selector});
  return b.AddNode("_SwitchN", {data, selector}, {{"num_outs", static_cast<int64_t>(step.gate->num_outputs())}});
}

// The steps of a path, outermost first, down to `path` itself.
std::vector<int> WayTo(const CondPaths& paths, int path) {
  std::vector<int> way;
  for (; path != 0; path = paths.step(path).outer) way.push_back(path);
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace

struct Backward::History {
  History(Region& of_region, const Loop& of_loop, Graph* graph) : region(of_region), loop(of_loop), b(graph) {}
  Region& region;
  const Loop& loop;  // the forward loop
  GraphBuilder b;    // the builder of the backward loop
  // The saved values, in the order of their positions in the history, and their static shapes.
  std::vector<Endpoint> saved;
  std::vector<PartialShape> shapes;
  absl::flat_hash_map<Endpoint, int> place;
  Node* pop = nullptr;                             // restores one iteration's values; null if none are saved
  absl::flat_hash_map<Endpoint, Endpoint> handed;  // forward value -> its counterpart in the backward loop
};

bool Backward::IsForward(const Node* node) const { return node->id() < first_new_id_ || added_forward_.contains(node); }

// True for loop invariants.
bool Backward::IsInvariant(const Endpoint& e) const {
  return (e.node->IsEnter() && e.node->AttrOr<bool>("is_constant", false)) || e.node->is_type("Const");
}

// A shape is much smaller than its tensor, so shapes are computed in the forward loop and saved.
bool Backward::BelongsForward(const Node& node) const {
  if (!node.op().Has(OpTrait::kShapeOf) && !node.is_type("BroadcastGradientArgs")) return false;
  bool varies = false;
  for (const Endpoint& e : node.inputs()) {
    if (!IsForward(e.node)) return false;
    varies |= !IsInvariant(e);
  }
  return varies;
}

void Backward::Adopt(int first_id) {
  if (region_->loop == LoopForest::kRoot) return;
  for (int id = first_id; id < graph_->max_id(); ++id) {
    Node* const node = graph_->FindNodeById(id);
    if (node == nullptr || added_forward_.contains(node)) continue;
    if (BelongsForward(*node)) {
      added_forward_.insert(node);
      int path = 0;
      for (const Endpoint& e : node->inputs()) {
        const int other = region_->paths->PathOf(e);
        if (region_->paths->step(other).depth > region_->paths->step(path).depth) path = other;
      }
      region_->paths->Add(node, path);
      continue;
    }
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (IsForward(node->input(i).node)) region_->borrowed.push_back({node, i, node->input(i)});
    }
    if (node->num_inputs() == 0 && node->control_inputs().empty()) graph_->AddControlInput(node, region_->pivot);
  }
}

// Saves a value, and the predicates that decide whether it exists, which are values too.
void Backward::PutAside(History& h, Endpoint e) const {
  if (IsInvariant(e) || !h.place.emplace(e, static_cast<int>(h.saved.size())).second) return;
  h.saved.push_back(e);
  const CondPaths& paths = *h.region.paths;
  for (int p = paths.PathOf(e); p != 0; p = paths.step(p).outer) PutAside(h, paths.step(p).selector);
}

// A value of a branch that was not taken is replaced by a placeholder.
StatusOr<Endpoint> Backward::AlwaysThere(History& h, GraphBuilder& f, Endpoint e, Node* pivot) const {
  const CondPaths& paths = *h.region.paths;
  int p = paths.PathOf(e);
  if (p != 0 && BaseType(e.dtype()) == DType::kResource) {
    return Unimplemented("Gradients: the loop '", h.loop.frame_name, "' needs the resource ", e.name(),
                         " of a branch in its gradient");
  }
  Endpoint value = e;
  for (; p != 0 && f.ok(); p = paths.step(p).outer) {
    // From the outermost branch to the one in which the value is missing.
    f.control_inputs = {pivot};
    Endpoint stand = Stand(f, BaseType(e.dtype()));
    f.control_inputs.clear();
    for (const int at : WayTo(paths, paths.step(p).outer)) {
      if (!f.ok()) break;
      Node* const gate = AddGate(f, paths.step(at), stand, paths.step(at).selector);
      if (gate != nullptr) stand = gate->output(paths.step(at).side);
    }
    const CondPaths::Step& step = paths.step(p);
    Node* const gate = AddGate(f, step, stand, step.selector);
    if (gate == nullptr) break;
    std::vector<Endpoint> sides;
    for (int side = 0; side < gate->num_outputs(); ++side)
      sides.push_back(side == step.side ? value : gate->output(side));
    value = f.Op("Merge", sides);
  }
  return value;
}

StatusOr<Endpoint> Backward::PushInForwardLoop(History& h, Endpoint forward_pivot) {
  const int first_id = graph_->max_id();
  GraphBuilder f = ForwardBuilder(h.loop);
  const Endpoint beside = h.loop.enters[0]->input(0);
  Node* alive = beside.node->IsSwitch() ? f.AddNode("Identity", {beside}) : beside.node;
  if (alive != nullptr) f.control_inputs = {alive};
  Node* const empty = f.AddNode("_EmptyHistory", {});
  f.control_inputs.clear();
  Carried history = CarryForward(f, h.loop, empty);
  MR_RETURN_IF_ERROR(f.status());
  Node* const pivot = f.AddNode("Identity", {forward_pivot});
  std::vector<Endpoint> values = {history.in_body()};
  for (const Endpoint& e : h.saved) {
    MR_ASSIGN_OR_RETURN(values.emplace_back(), AlwaysThere(h, f, e, pivot));
    h.shapes.push_back(h.region.paths->PathOf(e) == 0 ? e.shape() : PartialShape());
  }
  Node* const push = f.AddNode("_HistoryPush", values);
  MR_RETURN_IF_ERROR(f.status());
  Close(f, &history, push->output(0));
  MR_RETURN_IF_ERROR(f.status());
  MarkForward(first_id, h.loop);
  return history.exit->output(0);
}

Status Backward::PopInBackwardLoop(History& h, Endpoint history, Endpoint condition) {
  GraphBuilder& b = h.b;
  const int first_id = graph_->max_id();
  Node* const enter = EnterLoop(b, h.region, history, false);
  MR_RETURN_IF_ERROR(b.status());
  Adopt(first_id);
  region_ = &h.region;
  Carried rest = Carry(b, enter, PartialShape::Scalar());
  Gate(b, &rest, condition);
  MR_RETURN_IF_ERROR(b.status());
  std::vector<DType> types;
  for (const Endpoint& e : h.saved) types.push_back(BaseType(e.dtype()));
  h.pop = b.AddNode("_HistoryPop", {rest.in_body()}, {{"T", types}, {"shapes", h.shapes}});
  MR_RETURN_IF_ERROR(b.status());
  Close(b, &rest, h.pop->output(0));
  return absl::OkStatus();
}

Endpoint Backward::HandOut(History& h, Endpoint e) {
  if (const auto it = h.handed.find(e); it != h.handed.end()) return it->second;
  GraphBuilder& b = h.b;
  Endpoint result;
  if (e.node->is_type("Const")) {
    Node* const copy = b.AddNode("Const", {}, {{"value", *e.node->FindAttr("value")}, {"dtype", e.dtype()}});
    if (copy != nullptr) {
      graph_->AddControlInput(copy, h.region.pivot);
      result = copy->output(0);
    }
  } else if (IsInvariant(e)) {
    Region* const inner = region_;
    region_ = h.region.outer;
    const int first_id = graph_->max_id();
    Node* const enter = EnterLoop(b, h.region, e.node->input(0), true);
    Adopt(first_id);
    region_ = inner;
    if (enter != nullptr) result = enter->output(0);
  } else {
    result = h.pop->output(1 + h.place.at(e));
    const CondPaths& paths = *h.region.paths;
    for (const int at : WayTo(paths, paths.PathOf(e))) {
      if (!b.ok()) break;
      const CondPaths::Step& step = paths.step(at);
      const Endpoint selector = HandOut(h, step.selector);
      Node* const gate = AddGate(b, step, result, selector);
      if (gate != nullptr) result = gate->output(step.side);
    }
  }
  h.handed[e] = result;
  return result;
}

Status Backward::SaveValues(Region& region, const Loop& loop, Endpoint forward_pivot, Endpoint backward_condition) {
  if (region.borrowed.empty()) return absl::OkStatus();
  History h(region, loop, graph_);
  h.b.prefix = absl::StrCat(options_.name, "/", loop.condition->name(), "_grad");
  h.b.device = loop.condition->requested_device();
  for (const Region::Borrowed& borrowed : region.borrowed) PutAside(h, borrowed.value);
  if (!h.saved.empty()) {
    region_ = region.outer;
    MR_ASSIGN_OR_RETURN(const Endpoint history, PushInForwardLoop(h, forward_pivot));
    MR_RETURN_IF_ERROR(PopInBackwardLoop(h, history, backward_condition));
  }
  for (const Region::Borrowed& borrowed : region.borrowed) {
    const Endpoint value = HandOut(h, borrowed.value);
    MR_RETURN_IF_ERROR(h.b.status());
    graph_->SetInput(borrowed.node, borrowed.input, value);
  }
  return h.b.status();
}

}  // namespace millrace
