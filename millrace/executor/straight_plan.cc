#include "millrace/executor/straight_plan.h"

#include <algorithm>

#include "millrace/executor/straight_run.h"

namespace millrace {
namespace {

// Of several ready nodes, those with a higher number start first: nodes that others wait for, then nodes that run
// asynchronously.
int Urgency(const PlanNode& n) {
  if (n.is_send) return 3;
  if (n.is_async) return 2;
  return n.is_expensive ? 1 : 0;
}

}  // namespace

StraightPlan::~StraightPlan() = default;

std::unique_ptr<StraightPlan> StraightPlan::Compile(const Plan& plan) {
  auto straight = std::make_unique<StraightPlan>();
  const std::vector<PlanNode>& nodes = plan.nodes_;
  const int n = static_cast<int>(nodes.size());
  std::vector<int> position(plan.graph_->max_id(), -1);
  for (int i = 0; i < n; ++i) position[nodes[i].node->id()] = i;
  std::vector<bool> is_fed(plan.num_slots_, false);
  for (const int slot : plan.feed_slots_) is_fed[slot] = true;

  straight->info.resize(n);
  straight->pending.assign(n, 0);
  straight->uses.assign(plan.num_slots_, 0);
  std::vector<bool> never_runs(n, false);
  std::vector<std::vector<int>> successors(n);
  for (int i = 0; i < n; ++i) {
    const Node& node = *nodes[i].node;
    StraightPlan::NodeInfo& info = straight->info[i];
    info.may_take_long = nodes[i].is_expensive || nodes[i].is_send;
    const auto wait_for = [&](const Node* before) {
      const int source = position[before->id()];
      if (source < 0 || never_runs[source]) return;
      successors[source].push_back(i);
      ++straight->pending[i];
    };
    for (int k = 0; k < nodes[i].num_inputs; ++k) {
      const int slot = plan.input_slots_[nodes[i].first_input + k];
      ++straight->uses[slot];
      info.may_take_long |= node.input_type(k) == DType::kString;
      if (!is_fed[slot]) wait_for(node.input(k).node);
    }
    for (const Node* before : node.control_inputs()) wait_for(before);
    if (straight->pending[i] > 0) continue;
    never_runs[i] = nodes[i].kernel == nullptr;
    if (!never_runs[i]) (nodes[i].is_async ? straight->async_roots : straight->roots).push_back(i);
  }
  for (const int slot : plan.fetch_slots_) ++straight->uses[slot];
  for (const auto& [slot, value] : plan.constants_) ++straight->uses[slot];

  const auto later_first = [&](int a, int b) {
    const int urgency_a = Urgency(nodes[a]), urgency_b = Urgency(nodes[b]);
    return urgency_a != urgency_b ? urgency_a < urgency_b : a > b;
  };
  std::sort(straight->roots.begin(), straight->roots.end(), later_first);
  for (int i = 0; i < n; ++i) {
    std::sort(successors[i].begin(), successors[i].end(), later_first);
    straight->info[i].first_successor = static_cast<int>(straight->successors.size());
    straight->info[i].num_successors = static_cast<int>(successors[i].size());
    straight->successors.insert(straight->successors.end(), successors[i].begin(), successors[i].end());
  }
  return straight;
}

}  // namespace millrace
