#include "millrace/strategy/shard_reducer.h"

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/replica.h"
#include "millrace/api/scope_state.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {
namespace {

// The collective ops of a graph, in the order in which they were added.
struct GraphCollectives {
  std::vector<Node*> nodes;
};

GraphCollectives& CollectivesOf(const Scope& scope) {
  std::shared_ptr<void>& kept = api_internal::StateOf(scope).collections["collective_ops"];
  if (kept == nullptr) kept = std::make_shared<GraphCollectives>();
  return *static_cast<GraphCollectives*>(kept.get());
}

void GiveOrder(const Scope& scope, const Operation& op) {
  if (op.empty()) return;
  GraphCollectives& all = CollectivesOf(scope);
  pb::AttrValue order;
  order.set_i(static_cast<int64_t>(all.nodes.size()));
  scope.graph()->SetAttr(op.node(), kCollectiveOrderAttr, std::move(order));
  all.nodes.push_back(op.node());
}

// Collective ops have an order in their graph, and so run once in a step.
bool MayExchange(const Scope& scope, const std::string& key) {
  if (scope.ok() && api_internal::StateOf(scope).depth > 0) {
    scope.UpdateStatus(
        Unimplemented("'", key, "' is exchanged between workers inside of a loop, a conditional or a function (",
                      api_internal::StateOf(scope).function_name, "), where that is not available; do it outside"));
  }
  return scope.ok();
}

bool SameTypes(const Scope& scope, const ReplicaValues& all, size_t replicas) {
  for (const std::vector<Output>& values : all.values) {
    if (values.size() != replicas) {
      scope.UpdateStatus(InvalidArgument(all.key, ": there are ", values.size(), " values for ", replicas,
                                         " replicas of this worker"));
      return false;
    }
    for (const Output& value : values) {
      if (value.empty() || value.dtype() == all.values[0][0].dtype()) continue;
      scope.UpdateStatus(InvalidArgument(all.key, ": ", value.name(), " is ", DTypeName(value.dtype()), ", and ",
                                         all.values[0][0].name(), " is ", DTypeName(all.values[0][0].dtype())));
      return false;
    }
  }
  return scope.ok();
}

}  // namespace

ShardRange ReplicaLayout::local() const {
  const auto [first, last] = std::equal_range(owners.begin(), owners.end(), rank);
  return {static_cast<int>(first - owners.begin()), static_cast<int>(last - owners.begin())};
}

std::vector<Output> SumOverReplicas(const Scope& scope, const ReplicaLayout& layout, const ReplicaValues& all) {
  const ShardRange local = layout.local();
  if (layout.num_workers > 1 && !MayExchange(scope, all.key)) return {};
  if (all.values.empty() || !SameTypes(scope, all, static_cast<size_t>(local.size()))) return {};
  // What this worker can add up by itself. Without fixed order that is a tree of its own replicas.
  const bool fixed = layout.fixed_order || layout.num_workers == 1;
  std::vector<ShardRange> nodes = {{0, local.size()}};
  if (fixed) nodes = LargestNodes(layout.owners, layout.rank);
  std::vector<Output> sums;
  for (const ShardRange& node : nodes) {
    for (const std::vector<Output>& values : all.values) {
      sums.push_back(api_internal::TreeSum(scope, values, fixed ? local.first : 0, node));
    }
  }
  if (layout.num_workers == 1 || !scope.ok()) return sums;

  std::vector<int64_t> first, last, owners;
  for (const ShardRange& node : nodes) {
    first.push_back(node.first);
    last.push_back(node.last);
  }
  if (fixed) owners.assign(layout.owners.begin(), layout.owners.end());
  const auto tensors = static_cast<int64_t>(all.values.size());
  const Operation reduce = AddOp(scope.WithOpName("all_reduce"), "_CollectiveReduceShards",
                                 {InputList(std::vector<Input>(sums.begin(), sums.end()))},
                                 {{"M", tensors},
                                  {"key", all.key.substr(0, 500)},
                                  {"first", first},
                                  {"last", last},
                                  {"owners", owners},
                                  {"algorithm", layout.algorithm}});
  GiveOrder(scope, reduce);
  return reduce.empty() ? std::vector<Output>() : reduce.outputs(0, static_cast<int>(tensors));
}

std::vector<Output> BroadcastTensors(const Scope& scope, const std::string& key, const std::vector<Output>& values,
                                     int root) {
  if (values.empty() || !MayExchange(scope, key)) return {};
  const Operation op = AddOp(scope.WithOpName("broadcast"), "_CollectiveBroadcast",
                             {InputList(std::vector<Input>(values.begin(), values.end()))},
                             {{"key", key.substr(0, 500)}, {"root", static_cast<int64_t>(root)}});
  GiveOrder(scope, op);
  return op.empty() ? std::vector<Output>() : op.outputs(0, static_cast<int>(values.size()));
}

std::vector<Operation> CollectiveOpsOfStep(const Scope& scope, const std::vector<Output>& losses) {
  const std::vector<Node*>& collectives = CollectivesOf(scope).nodes;
  const auto is_data = [&](const Node* node) {
    if (absl::StartsWith(node->type(), "Placeholder") || absl::StartsWith(node->type(), "IteratorGetNext")) return true;
    return node->op().Has(OpTrait::kWaits) &&
           std::find(collectives.begin(), collectives.end(), node) == collectives.end();
  };
  absl::flat_hash_set<const Node*> reached;
  // Adds what `nodes` depend on; true if all of the data among it was there.
  const auto reach = [&](std::vector<const Node*> nodes, bool any_data) {
    bool has_all = true;
    std::vector<const Node*> added;
    while (!nodes.empty()) {
      const Node* const node = nodes.back();
      nodes.pop_back();
      if (!reached.insert(node).second) continue;
      added.push_back(node);
      if (!any_data && is_data(node)) has_all = false;
      for (int i = 0; i < node->num_inputs(); ++i) nodes.push_back(node->input(i).node);
      for (const Node* before : node->control_inputs()) nodes.push_back(before);
    }
    if (!has_all) {
      for (const Node* node : added) reached.erase(node);
    }
    return has_all;
  };
  std::vector<const Node*> roots;
  for (const Output& loss : losses) {
    if (!loss.empty()) roots.push_back(loss.node());
  }
  reach(std::move(roots), /*any_data=*/true);
  std::vector<Operation> ops;
  for (Node* node : collectives) {
    if (reach({node}, /*any_data=*/false)) ops.emplace_back(scope, node);
  }
  return ops;
}

}  // namespace millrace
