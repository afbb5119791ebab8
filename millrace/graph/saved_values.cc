// Values of a forward loop that its backward loop needs.
//
// All that one iteration needs is put aside together, in one history that goes round the forward loop and then the
// backward one. A history is a value like any other, so a loop within a loop needs nothing special: its history is among what
// the outer loop saves.
#include <cstring>

#include "millrace/graph/backward.h"

namespace millrace {
namespace {

// Something of that type, for the iterations in which a value does not exist.
Endpoint Stand(GraphBuilder& b, DType dtype) {
  if (dtype == DType::kVariant) return b.Op("_EmptyHistory", std::vector<Endpoint>{});
  Tensor t(dtype, Shape());
  if (IsPlain(dtype)) std::memset(t.raw_data(), 0, t.TotalBytes());
  return b.Const(t);
}

}  // namespace

bool Backward::IsForward(const Node* node) const {
  return node->id() < first_new_id_ || added_forward_.contains(node);
}

// The same in every iteration.
bool Backward::IsInvariant(const Endpoint& e) const {
  return (e.node->IsEnter() && e.node->AttrOr<bool>("is_constant", false)) || e.node->is_type("Const");
}

// Shapes are much smaller than what they are of: they are taken in the forward loop.
bool Backward::BelongsForward(const Node& node) const {
  if (!node.is_type("Shape") && !node.is_type("ShapeN") && !node.is_type("Rank") && !node.is_type("Size") &&
      !node.is_type("BroadcastGradientArgs"))
    return false;
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

Status Backward::SaveValues(Region& region, const Loop& loop, Endpoint forward_pivot, Endpoint backward_condition) {
  if (region.borrowed.empty()) return absl::OkStatus();
  GraphBuilder b(graph_);
  b.prefix = absl::StrCat(options_.name, "/", loop.condition->name(), "_grad");
  b.device = loop.condition->requested_device();
  absl::flat_hash_map<Endpoint, Endpoint> handed;  // forward value -> what stands for it in the backward loop
  std::vector<Endpoint> saved;                     // values put aside, in the order of their places
  absl::flat_hash_map<Endpoint, int> place;
  // Every value, and the choices that decide whether it exists, which are values too.
  const std::function<void(Endpoint)> save = [&](Endpoint e) {
    if (IsInvariant(e) || !place.emplace(e, static_cast<int>(saved.size())).second) return;
    saved.push_back(e);
    for (int p = region.paths->PathOf(e); p != 0; p = region.paths->step(p).outer) save(region.paths->step(p).selector);
  };
  for (const Region::Borrowed& borrowed : region.borrowed) save(borrowed.value);

  Node* pop = nullptr;
  if (!saved.empty()) {
    // In the forward loop. A value of a branch that was not taken is stood for by another.
    Region* const inner = region_;
    region_ = region.outer;
    const int first_id = graph_->max_id();
    GraphBuilder f = ForwardBuilder(loop);
    const Endpoint beside = loop.enters[0]->input(0);
    Node* alive = beside.node->IsSwitch() ? f.AddNode("Identity", {beside}) : beside.node;
    if (alive != nullptr) f.control_inputs = {alive};
    Node* const empty = f.AddNode("_EmptyHistory", {});
    f.control_inputs.clear();
    Carried history = CarryForward(f, loop, empty);
    MR_RETURN_IF_ERROR(f.status());
    Node* const pivot = f.AddNode("Identity", {forward_pivot});
    const auto choose = [&](const CondPaths::Step& step, Endpoint data) {
      return step.gate->is_type("_SwitchN")
                 ? f.AddNode("_SwitchN", {data, step.selector}, {{"num_outs", static_cast<int64_t>(step.gate->num_outputs())}})
                 : f.AddNode("Switch", {data, step.selector});
    };
    std::vector<Endpoint> values = {history.in_body()};
    std::vector<PartialShape> shapes;
    for (const Endpoint& e : saved) {
      Endpoint value = e;
      int p = region.paths->PathOf(e);
      if (p != 0 && BaseType(e.dtype()) == DType::kResource) {
        return Unimplemented("Gradients: the loop '", loop.frame_name, "' needs the resource ", e.name(),
                             " of a branch in its gradient");
      }
      shapes.push_back(p == 0 ? e.shape() : PartialShape());
      for (; p != 0 && f.ok(); p = region.paths->step(p).outer) {
        // From the outside in to where the value is missing.
        f.control_inputs = {pivot};
        Endpoint stand = Stand(f, BaseType(e.dtype()));
        f.control_inputs.clear();
        std::vector<int> way;
        for (int at = region.paths->step(p).outer; at != 0; at = region.paths->step(at).outer) way.push_back(at);
        for (auto it = way.rbegin(); it != way.rend() && f.ok(); ++it) {
          Node* const gate = choose(region.paths->step(*it), stand);
          if (gate != nullptr) stand = gate->output(region.paths->step(*it).side);
        }
        const CondPaths::Step& step = region.paths->step(p);
        Node* const gate = choose(step, stand);
        if (gate == nullptr) break;
        std::vector<Endpoint> sides;
        for (int side = 0; side < gate->num_outputs(); ++side) sides.push_back(side == step.side ? value : gate->output(side));
        value = f.Op("Merge", sides);
      }
      values.push_back(value);
    }
    Node* const push = f.AddNode("_HistoryPush", values);
    MR_RETURN_IF_ERROR(f.status());
    Close(f, &history, push->output(0));
    MR_RETURN_IF_ERROR(f.status());
    MarkForward(first_id, loop);

    // In the backward loop.
    const int enter_id = graph_->max_id();
    Node* const enter = EnterLoop(b, region, history.exit->output(0), false);
    MR_RETURN_IF_ERROR(b.status());
    Adopt(enter_id);
    region_ = inner;
    Carried rest = Carry(b, enter, PartialShape::Scalar());
    Gate(b, &rest, backward_condition);
    MR_RETURN_IF_ERROR(b.status());
    std::vector<DType> types;
    for (const Endpoint& e : saved) types.push_back(BaseType(e.dtype()));
    pop = b.AddNode("_HistoryPop", {rest.in_body()}, {{"T", types}, {"shapes", shapes}});
    MR_RETURN_IF_ERROR(b.status());
    Close(b, &rest, pop->output(0));
  }

  // What stands for a value: a place in the history, alive just when the value was.
  const std::function<Endpoint(Endpoint)> hand_out = [&](Endpoint e) -> Endpoint {
    if (const auto it = handed.find(e); it != handed.end()) return it->second;
    Endpoint result;
    if (e.node->is_type("Const")) {
      Node* const copy = b.AddNode("Const", {}, {{"value", *e.node->FindAttr("value")}, {"dtype", e.dtype()}});
      if (copy != nullptr) {
        graph_->AddControlInput(copy, region.pivot);
        result = copy->output(0);
      }
    } else if (IsInvariant(e)) {
      Region* const inner = region_;
      region_ = region.outer;
      const int first_id = graph_->max_id();
      Node* const enter = EnterLoop(b, region, e.node->input(0), true);
      Adopt(first_id);
      region_ = inner;
      if (enter != nullptr) result = enter->output(0);
    } else {
      result = pop->output(1 + place.at(e));
      std::vector<int> way;
      for (int p = region.paths->PathOf(e); p != 0; p = region.paths->step(p).outer) way.push_back(p);
      for (auto it = way.rbegin(); it != way.rend() && b.ok(); ++it) {
        const CondPaths::Step& step = region.paths->step(*it);
        const Endpoint selector = hand_out(step.selector);
        Node* const gate = step.gate->is_type("_SwitchN")
                               ? b.AddNode("_SwitchN", {result, selector},
                                           {{"num_outs", static_cast<int64_t>(step.gate->num_outputs())}})
                               : b.AddNode("Switch", {result, selector});
        if (gate != nullptr) result = gate->output(step.side);
      }
    }
    handed[e] = result;
    return result;
  };
  for (const Region::Borrowed& borrowed : region.borrowed) {
    const Endpoint value = hand_out(borrowed.value);
    MR_RETURN_IF_ERROR(b.status());
    graph_->SetInput(borrowed.node, borrowed.input, value);
  }
  return b.status();
}

}  // namespace millrace
