// Gradients of loops.
//
// A forward loop that ran n times gets a backward loop that runs n times. It carries the gradients of the forward loop's
// variables, starting with those of its Exits, through the gradient of the body; what comes out are the gradients
// of the Enters. The gradient of a value that is the same in every iteration is summed up as it goes round.
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

// A variable's handle has zeros like its value.
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

// Variables whose gradient is wanted: those that leave the loop with one, and those they are made of.
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
  Node* const enter = b.AddNode("Enter", {start->output(0)},
                                {{"frame_name", loop.frame_name},
                                 {"parallel_iterations", model->AttrOr<int64_t>("parallel_iterations", 10)}});
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

// The gradient of a matrix that rows are multiplied with, x W, is a sum over all rows: x' g. Small ones of every iteration
// are better put below each other and multiplied once, when the loop is over.
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
    const Endpoint empty = b.Op("EmptyTensorList", {b.Ints({-1, columns}), b.Scalar<int32_t>(-1)}, {{"element_dtype", dtype}});
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

Status Backward::VisitLoop(int index) {
  const Loop& loop = forest_.loop(index);
  for (Node* exit : loop.exits) {
    if (!parts_.contains(exit->output(0))) continue;
    const bool known = std::any_of(loop.variables.begin(), loop.variables.end(),
                                   [&](const Loop::Variable& v) { return v.exit == exit; });
    if (!known) {
      return Unimplemented("Gradient of {{node ", exit->name(), "}} (op ", exit->type(), "): the loop '", loop.frame_name,
                           "' is not one that While makes");
    }
  }
  const std::vector<Loop::Variable> variables = LiveVariables(loop);
  if (variables.empty()) return absl::OkStatus();
  if (loop.condition == nullptr || loop.exits.empty()) {
    return InvalidArgument("Gradients: the loop '", loop.frame_name, "' has no LoopCond");
  }
  MR_ASSIGN_OR_RETURN(const Carried count, CountIterations(loop));

  Region* const outer = region_;
  Region region;
  region.loop = index;
  region.outer = outer;
  region.frame_name = absl::StrCat(options_.name, "/", loop.frame_name, "_", graph_->max_id());
  region.parallel_iterations = loop.enters[0]->AttrOr<int64_t>("parallel_iterations", 10);
  GraphBuilder b(graph_);
  b.prefix = absl::StrCat(options_.name, "/", loop.condition->name(), "_grad");
  b.device = options_.device.empty() ? loop.condition->requested_device() : options_.device;

  // What the backward loop starts with, made beside it.
  int first_id = graph_->max_id();
  Node* const count_enter = EnterLoop(b, region, count.exit->output(0), false);
  std::vector<Node*> enters;
  for (const Loop::Variable& v : variables) {
    Endpoint start;
    if (v.exit != nullptr) start = DenseTotal(v.exit->output(0));
    if (!start) {
      Node* exit = v.exit;
      if (exit == nullptr) {
        const int added = graph_->max_id();
        exit = b.AddNode("Exit", {v.gate->output(0)});
        MR_RETURN_IF_ERROR(b.status());
        MarkForward(added, loop);
      }
      if (BaseType(exit->output_type(0)) == DType::kResource) {
        return Unimplemented("Gradients: the loop '", loop.frame_name, "' carries a resource from iteration to iteration");
      }
      start = b.ZerosLike(exit->output(0));
    }
    enters.push_back(EnterLoop(b, region, start, false));
  }
  MR_RETURN_IF_ERROR(b.status());
  MR_RETURN_IF_ERROR(sums_.status());
  Adopt(first_id);

  // The loop itself counts down.
  Carried left = Carry(b, count_enter, PartialShape::Scalar());
  b.control_inputs = {left.merge};
  const Endpoint zero = b.Scalar<int32_t>(0);
  b.control_inputs.clear();
  const Endpoint condition = b.Op("LoopCond", {b.Op("Greater", {left.merge->output(0), zero})});
  Gate(b, &left, condition);
  std::vector<Carried> grads;
  for (size_t i = 0; i < variables.size(); ++i) {
    grads.push_back(Carry(b, enters[i], variables[i].merge->output_shape(0)));
    Gate(b, &grads.back(), condition);
  }
  MR_RETURN_IF_ERROR(b.status());
  region.pivot = b.AddNode("Identity", {left.in_body()});
  b.control_inputs = {region.pivot};
  const Endpoint one = b.Scalar<int32_t>(1);
  b.control_inputs.clear();
  Close(b, &left, b.Sub(region.pivot->output(0), one));
  MR_RETURN_IF_ERROR(b.status());

  // Through the body.
  region_ = &region;
  for (size_t i = 0; i < variables.size(); ++i) parts_[variables[i].next->input(0)].push_back(grads[i].in_body());
  MR_RETURN_IF_ERROR(VisitAll(index));
  for (size_t i = 0; i < variables.size(); ++i) {
    first_id = graph_->max_id();
    Endpoint next = DenseTotal(variables[i].gate->output(1));
    const Endpoint of_merge = DenseTotal(variables[i].merge->output(0));
    if (next && of_merge) next = b.Op("AddN", {next, of_merge});
    if (!next) next = of_merge;
    if (!next) next = b.ZerosLike(grads[i].in_body());
    Close(b, &grads[i], next);
    MR_RETURN_IF_ERROR(b.status());
    Adopt(first_id);
  }
  std::vector<std::pair<Endpoint, Endpoint>> results;  // of a tensor around the loop
  for (size_t i = 0; i < variables.size(); ++i) {
    results.emplace_back(variables[i].enter->input(0), grads[i].exit->output(0));
  }
  for (Node* enter : loop.enters) {
    const Endpoint value = enter->output(0);
    if (!parts_.contains(value)) continue;
    std::vector<Grad>& parts = parts_[value];
    for (size_t k = 0; k < parts.size();) {
      if (!enter->AttrOr<bool>("is_constant", false) || !IsSumOfRows(parts[k])) {
        ++k;
        continue;
      }
      Node* const product = parts[k].dense.node;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(k));
      MR_ASSIGN_OR_RETURN(const Endpoint sum, MultiplyAtOnce(b, region, product, condition));
      results.emplace_back(enter->input(0), sum);
    }
    if (parts.empty()) continue;
    const Endpoint part = DenseTotal(value);
    MR_RETURN_IF_ERROR(sums_.status());
    if (!enter->AttrOr<bool>("is_constant", false)) {
      return Unimplemented("Gradients: {{node ", enter->name(), "}} enters the loop '", loop.frame_name,
                           "' for its first iteration only and is used without a Merge");
    }
    region_ = outer;
    first_id = graph_->max_id();
    Node* const start = EnterLoop(b, region, ZerosOf(b, enter->input(0), part.dtype()), false);
    MR_RETURN_IF_ERROR(b.status());
    Adopt(first_id);
    region_ = &region;
    Carried sum = Carry(b, start, part.shape());
    Gate(b, &sum, condition);
    MR_RETURN_IF_ERROR(b.status());
    Close(b, &sum, b.Op("AddN", {sum.in_body(), part}));
    MR_RETURN_IF_ERROR(b.status());
    results.emplace_back(enter->input(0), sum.exit->output(0));
  }
  MR_RETURN_IF_ERROR(SaveValues(region, loop, count.in_body(), condition));
  region_ = outer;
  for (const auto& [tensor, grad] : results) {
    if (IsReached(tensor)) parts_[tensor].push_back(grad);
  }
  return absl::OkStatus();
}

}  // namespace millrace
