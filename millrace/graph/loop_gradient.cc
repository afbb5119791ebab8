// Gradients of loops.
//
// A forward loop that ran n times gets a backward loop that runs n times. Its loop variables are the gradients of the
// forward loop's variables: they start as the gradients of the Exits, pass through the gradient of the body in each
// iteration, and end as the gradients of the Enters. The gradient of a loop invariant is accumulated over the
// iterations.
#include <algorithm>

#include "millrace/graph/backward.h"

namespace millrace {

Node* Backward::EnterLoop(GraphBuilder& b, const Region& region, Endpoint value, bool constant) const {
  return b.AddNode("Enter", {value},
                   {{"frame_name", region.frame_name},
                    {"is_constant", constant},
                    {"parallel_iterations", region.parallel_iterations}});
}

Backward::Carried Backward::Carry(GraphBuilder& b, Node* enter, const PartialShape& shape) const {
  Carried carried;
  if (enter == nullptr) return carried;
  carried.merge = b.AddNode("Merge", {enter->output(0)});
  if (carried.merge != nullptr) graph_->SetOutputShape(carried.merge, 0, shape);
  return carried;
}

void Backward::Gate(GraphBuilder& b, Carried* carried, Endpoint condition) const {
  if (!b.ok()) return;
  carried->gate = b.AddNode("Switch", {carried->merge->output(0), condition});
  if (carried->gate != nullptr) carried->exit = b.AddNode("Exit", {carried->gate->output(0)});
}

void Backward::Close(GraphBuilder& b, Carried* carried, Endpoint next) const {
  if (!b.ok()) return;
  Node* const node = b.AddNode("NextIteration", {next});
  if (node != nullptr) b.UpdateStatus(graph_->AddInput(carried->merge, node->output(0)));
}

// The zeros of a variable's handle have the shape of its value.
Endpoint Backward::ZerosOf(GraphBuilder& b, Endpoint value, DType dtype) const {
  if (BaseType(value.dtype()) != DType::kResource) return b.ZerosLike(value);
  return b.ZerosLike(b.Op("ReadVariableOp", {value}, {{"dtype", dtype}}));
}

GraphBuilder Backward::ForwardBuilder(const Loop& loop) const {
  GraphBuilder b(graph_);
  b.prefix = absl::StrCat(options_.name, "/", loop.condition->name(), "_saved");
  b.device = loop.condition->requested_device();
  return b;
}

// Loop variables that need a gradient: those whose Exit has one, and those that these are computed from.
std::vector<Loop::Variable> Backward::LiveVariables(const Loop& loop) const {
  std::vector<bool> live(loop.variables.size(), false);
  absl::flat_hash_map<const Node*, size_t> border;
  std::vector<const Node*> stack;
  absl::flat_hash_set<const Node*> seen;
  for (size_t i = 0; i < loop.variables.size(); ++i) {
    border[loop.variables[i].gate] = i;
    border[loop.variables[i].merge] = i;
  }
  const auto visit = [&](const Endpoint& e) {
    if (!IsReached(e)) return;
    if (seen.insert(e.node).second) stack.push_back(e.node);
  };
  const auto add = [&](size_t i) {
    if (live[i] || loop.variables[i].gate == nullptr) return;
    live[i] = true;
    visit(loop.variables[i].next->input(0));
  };
  for (size_t i = 0; i < loop.variables.size(); ++i) {
    const Node* exit = loop.variables[i].exit;
    if (exit != nullptr && parts_.contains({const_cast<Node*>(exit), 0})) add(i);
  }
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (const auto it = border.find(node); it != border.end()) {
      add(it->second);
      continue;
    }
    for (const Endpoint& e : node->inputs()) visit(e);
  }
  std::vector<Loop::Variable> variables;
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i]) variables.push_back(loop.variables[i]);
  }
  return variables;
}

Backward::Carried Backward::CarryForward(GraphBuilder& b, const Loop& loop, Node* start) const {
  if (start == nullptr) return {};
  Node* const model = loop.enters[0];
  Node* const enter = b.AddNode(
      "Enter", {start->output(0)},
      {{"frame_name", loop.frame_name}, {"parallel_iterations", model->AttrOr<int64_t>("parallel_iterations", 10)}});
  Carried carried = Carry(b, enter, PartialShape::Scalar());
  Gate(b, &carried, loop.condition->output(0));
  return carried;
}

void Backward::MarkForward(int first_id, const Loop& loop) {
  for (int id = first_id; id < graph_->max_id(); ++id) {
    const Node* node = graph_->FindNodeById(id);
    added_forward_.insert(node);
    if (region_->paths) region_->paths->Add(node, region_->paths->PathOf({loop.exits[0], 0}));
  }
}

StatusOr<Backward::Carried> Backward::CountIterations(const Loop& loop) {
  const int first_id = graph_->max_id();
  GraphBuilder b = ForwardBuilder(loop);
  const Endpoint beside = loop.enters[0]->input(0);
  Node* alive = beside.node->IsSwitch() ? b.AddNode("Identity", {beside}) : beside.node;
  if (alive != nullptr) b.control_inputs = {alive};
  Node* const zero = b.Scalar<int32_t>(0).node;
  b.control_inputs.clear();
  Carried count = CarryForward(b, loop, zero);
  if (b.ok()) {
    Node* const pivot = b.AddNode("Identity", {count.in_body()});
    if (pivot != nullptr) b.control_inputs = {pivot};
    const Endpoint one = b.Scalar<int32_t>(1);
    b.control_inputs.clear();
    if (b.ok()) Close(b, &count, b.Add(pivot->output(0), one));
  }
  MR_RETURN_IF_ERROR(b.status());
  MarkForward(first_id, loop);
  return count;
}

// The gradient of W in x W is a sum over rows, x' g. It is faster to stack the small x and g of all iterations and
// multiply once after the loop.
bool Backward::IsSumOfRows(const Grad& grad) const {
  if (grad.IsSlices()) return false;
  const Node& node = *grad.dense.node;
  if (IsForward(&node) || !node.is_type("MatMul") || !node.AttrOr<bool>("transpose_a", false) ||
      node.AttrOr<bool>("transpose_b", false))
    return false;
  for (int i = 0; i < 2; ++i) {
    if (!node.input(i).shape().IsFullyDefined() || node.input(i).shape().rank() != 2) return false;
    if (IsForward(node.input(i).node) && region_->paths->PathOf(node.input(i)) != 0) return false;
  }
  const double m = static_cast<double>(node.input(0).shape().dim(0));
  const double k = static_cast<double>(node.input(0).shape().dim(1));
  const double n = static_cast<double>(node.input(1).shape().dim(1));
  return m * (k + n) <= k * n;
}

StatusOr<Endpoint> Backward::MultiplyAtOnce(GraphBuilder& b, Region& region, Node* product, Endpoint condition) {
  const DType dtype = product->output_type(0);
  Endpoint all[2];
  for (int i = 0; i < 2; ++i) {
    const int32_t columns = static_cast<int32_t>(product->input(i).shape().dim(1));
    region_ = region.outer;
    int first_id = graph_->max_id();
    const Endpoint empty =
        b.Op("EmptyTensorList", {b.Ints({-1, columns}), b.Scalar<int32_t>(-1)}, {{"element_dtype", dtype}});
    Node* const enter = EnterLoop(b, region, empty, false);
    MR_RETURN_IF_ERROR(b.status());
    Adopt(first_id);
    region_ = &region;
    Carried rows = Carry(b, enter, PartialShape::Scalar());
    Gate(b, &rows, condition);
    MR_RETURN_IF_ERROR(b.status());
    first_id = graph_->max_id();
    const Endpoint longer = b.Op("TensorListPushBack", {rows.in_body(), product->input(i)}, {{"element_dtype", dtype}});
    MR_RETURN_IF_ERROR(b.status());
    Adopt(first_id);
    Close(b, &rows, longer);
    MR_RETURN_IF_ERROR(b.status());
    region_ = region.outer;
    first_id = graph_->max_id();
    all[i] = b.Op("TensorListConcatV2",
                  {rows.exit->output(0), b.Ints({-1, columns}), b.Const(Tensor(DType::kInt64, Shape({0})))},
                  {{"element_dtype", dtype}});
    if (i == 1) all[0] = b.Op("MatMul", {all[0], all[1]}, {{"transpose_a", true}});
    MR_RETURN_IF_ERROR(b.status());
    Adopt(first_id);
    region_ = &region;
  }
  return all[0];
}

Status Backward::CheckExits(const Loop& loop) const {
  for (Node* exit : loop.exits) {
    if (!parts_.contains(exit->output(0))) continue;
    const bool known = std::any_of(loop.variables.begin(), loop.variables.end(),
                                   [&](const Loop::Variable& v) { return v.exit == exit; });
    if (!known) {
      return Unimplemented("Gradient of {{node ", exit->name(), "}} (op ", exit->type(), "): the loop '",
                           loop.frame_name, "' is not one that While makes");
    }
  }
  return absl::OkStatus();
}

StatusOr<Endpoint> Backward::StartOfGradient(LoopGradient& g, const Loop::Variable& v) {
  if (v.exit != nullptr) {
    if (const Endpoint total = DenseTotal(v.exit->output(0))) return total;
  }
  Node* exit = v.exit;
  if (exit == nullptr) {
    const int added = graph_->max_id();
    exit = g.b.AddNode("Exit", {v.gate->output(0)});
    MR_RETURN_IF_ERROR(g.b.status());
    MarkForward(added, g.loop);
  }
  if (BaseType(exit->output_type(0)) == DType::kResource) {
    return Unimplemented("Gradients: the loop '", g.loop.frame_name,
                         "' carries a resource from iteration to iteration");
  }
  return g.b.ZerosLike(exit->output(0));
}

Status Backward::EnterBackwardLoop(LoopGradient& g) {
  const int first_id = graph_->max_id();
  g.count_enter = EnterLoop(g.b, g.region, g.count.exit->output(0), false);
  for (const Loop::Variable& v : g.variables) {
    MR_ASSIGN_OR_RETURN(const Endpoint start, StartOfGradient(g, v));
    g.enters.push_back(EnterLoop(g.b, g.region, start, false));
  }
  MR_RETURN_IF_ERROR(g.b.status());
  MR_RETURN_IF_ERROR(sums_.status());
  Adopt(first_id);
  return absl::OkStatus();
}

Status Backward::CountDown(LoopGradient& g) {
  GraphBuilder& b = g.b;
  Carried left = Carry(b, g.count_enter, PartialShape::Scalar());
  b.control_inputs = {left.merge};
  const Endpoint zero = b.Scalar<int32_t>(0);
  b.control_inputs.clear();
  g.condition = b.Op("LoopCond", {b.Op("Greater", {left.merge->output(0), zero})});
  Gate(b, &left, g.condition);
  for (size_t i = 0; i < g.variables.size(); ++i) {
    g.grads.push_back(Carry(b, g.enters[i], g.variables[i].merge->output_shape(0)));
    Gate(b, &g.grads.back(), g.condition);
  }
  MR_RETURN_IF_ERROR(b.status());
  g.region.pivot = b.AddNode("Identity", {left.in_body()});
  b.control_inputs = {g.region.pivot};
  const Endpoint one = b.Scalar<int32_t>(1);
  b.control_inputs.clear();
  Close(b, &left, b.Sub(g.region.pivot->output(0), one));
  return b.status();
}

Status Backward::GoBackThroughBody(LoopGradient& g) {
  for (size_t i = 0; i < g.variables.size(); ++i) {
    parts_[g.variables[i].next->input(0)].push_back(g.grads[i].in_body());
  }
  MR_RETURN_IF_ERROR(VisitAll(g.region.loop));
  for (size_t i = 0; i < g.variables.size(); ++i) {
    const int first_id = graph_->max_id();
    Endpoint next = DenseTotal(g.variables[i].gate->output(1));
    const Endpoint of_merge = DenseTotal(g.variables[i].merge->output(0));
    if (next && of_merge) next = g.b.Op("AddN", {next, of_merge});
    if (!next) next = of_merge;
    if (!next) next = g.b.ZerosLike(g.grads[i].in_body());
    Close(g.b, &g.grads[i], next);
    MR_RETURN_IF_ERROR(g.b.status());
    Adopt(first_id);
  }
  for (size_t i = 0; i < g.variables.size(); ++i) {
    g.results.emplace_back(g.variables[i].enter->input(0), g.grads[i].exit->output(0));
  }
  return absl::OkStatus();
}

Status Backward::SumUpInvariant(LoopGradient& g, Node* enter) {
  const Endpoint value = enter->output(0);
  const bool is_constant = enter->AttrOr<bool>("is_constant", false);
  std::vector<Grad>& parts = parts_[value];
  for (size_t k = 0; k < parts.size();) {
    if (!is_constant || !IsSumOfRows(parts[k])) {
      ++k;
      continue;
    }
    Node* const product = parts[k].dense.node;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(k));
    MR_ASSIGN_OR_RETURN(const Endpoint sum, MultiplyAtOnce(g.b, g.region, product, g.condition));
    g.results.emplace_back(enter->input(0), sum);
  }
  if (parts.empty()) return absl::OkStatus();
  const Endpoint part = DenseTotal(value);
  MR_RETURN_IF_ERROR(sums_.status());
  if (!is_constant) {
    return Unimplemented("Gradients: {{node ", enter->name(), "}} enters the loop '", g.loop.frame_name,
                         "' for its first iteration only and is used without a Merge");
  }
  region_ = g.region.outer;
  const int first_id = graph_->max_id();
  Node* const start = EnterLoop(g.b, g.region, ZerosOf(g.b, enter->input(0), part.dtype()), false);
  MR_RETURN_IF_ERROR(g.b.status());
  Adopt(first_id);
  region_ = &g.region;
  Carried sum = Carry(g.b, start, part.shape());
  Gate(g.b, &sum, g.condition);
  MR_RETURN_IF_ERROR(g.b.status());
  Close(g.b, &sum, g.b.Op("AddN", {sum.in_body(), part}));
  MR_RETURN_IF_ERROR(g.b.status());
  g.results.emplace_back(enter->input(0), sum.exit->output(0));
  return absl::OkStatus();
}

Status Backward::VisitLoop(int index) {
  const Loop& loop = forest_.loop(index);
  MR_RETURN_IF_ERROR(CheckExits(loop));
  LoopGradient g(loop, graph_);
  g.variables = LiveVariables(loop);
  if (g.variables.empty()) return absl::OkStatus();
  if (loop.condition == nullptr || loop.exits.empty()) {
    return InvalidArgument("Gradients: the loop '", loop.frame_name, "' has no LoopCond");
  }
  MR_ASSIGN_OR_RETURN(g.count, CountIterations(loop));
  g.region.loop = index;
  g.region.outer = region_;
  g.region.frame_name = absl::StrCat(options_.name, "/", loop.frame_name, "_", graph_->max_id());
  g.region.parallel_iterations = loop.enters[0]->AttrOr<int64_t>("parallel_iterations", 10);
  g.b.prefix = absl::StrCat(options_.name, "/", loop.condition->name(), "_grad");
  g.b.device = options_.device.empty() ? loop.condition->requested_device() : options_.device;

  MR_RETURN_IF_ERROR(EnterBackwardLoop(g));
  MR_RETURN_IF_ERROR(CountDown(g));
  region_ = &g.region;
  MR_RETURN_IF_ERROR(GoBackThroughBody(g));
  for (Node* enter : loop.enters) {
    if (parts_.contains(enter->output(0))) MR_RETURN_IF_ERROR(SumUpInvariant(g, enter));
  }
  MR_RETURN_IF_ERROR(SaveValues(g.region, loop, g.count.in_body(), g.condition));
  region_ = g.region.outer;
  for (const auto& [tensor, grad] : g.results) {
    if (IsReached(tensor)) parts_[tensor].push_back(grad);
  }
  return absl::OkStatus();
}

}  // namespace millrace
