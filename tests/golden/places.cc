#include "tests/golden/places.h"

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::golden {
namespace {

bool HasGpuKernel(const Node& node) { return node.is_type("NoOp") || KernelRegistry::Global().HasFor(node, "GPU"); }

// The nodes of a graph by what must be on one device: those of one resource or reference, and those that say so.
class Groups {
 public:
  explicit Groups(const Graph& graph) {
    for (const Node* node : graph.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Endpoint input = node->input(i);
        if (IsRef(input.dtype()) || input.dtype() == DType::kResource) Join(node, input.node);
      }
      for (absl::string_view with : node->AttrOr<std::vector<std::string>>("_class", {})) {
        const Node* const other = absl::ConsumePrefix(&with, "loc:@") ? graph.FindNode(with) : nullptr;
        if (other != nullptr) Join(node, other);
      }
    }
    for (const Node* node : graph.nodes()) {
      if (!HasGpuKernel(*node)) without_kernel_.insert(Find(node));
    }
  }
  bool AllHaveGpuKernels(const Node* node) { return !without_kernel_.contains(Find(node)); }

 private:
  const Node* Find(const Node* node) {
    while (true) {
      const auto at = joined_.find(node);
      if (at == joined_.end()) return node;
      node = at->second;
    }
  }
  void Join(const Node* a, const Node* b) {
    if (Find(a) != Find(b)) joined_.emplace(Find(a), Find(b));
  }

  std::map<const Node*, const Node*> joined_;
  std::set<const Node*> without_kernel_;
};

}  // namespace

Status Places::Note(const Graph& graph, const RunMetadata& step) {
  Status result;
  std::optional<Groups> groups;
  for (const auto& device : step.step_stats().dev_stats()) {
    const bool is_gpu = absl::StrContains(device.device(), "GPU");
    for (const auto& stats : device.node_stats()) {
      ++(is_gpu ? on_gpu_ : on_cpu_);
      if (is_gpu) continue;
      const Node* const node = graph.FindNode(stats.node_name());
      ++cpu_ops_[node == nullptr ? "made by Millrace" : node->type()];
      if (node == nullptr || !absl::StrContains(node->requested_device(), "GPU")) continue;
      if (!groups.has_value()) groups.emplace(graph);
      if (result.ok() && groups->AllHaveGpuKernels(node)) {
        result = DataLoss(node->name(), " (op ", node->type(), ") asks for ", node->requested_device(),
                          ", which has a kernel for it, and ran on ", device.device());
      }
    }
  }
  return result;
}

std::string Places::CpuOps() const {
  std::multimap<int, std::string, std::greater<>> by_count;
  for (const auto& [op, count] : cpu_ops_) by_count.emplace(count, op);
  return absl::StrJoin(by_count, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second, " ", entry.first);
  });
}

}  // namespace millrace::golden
