// From a graph and what is asked of it to a plan: expand functions, place, rewrite, compile.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "millrace/executor/plan.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {

struct CompileOptions {
  std::vector<Device*> devices = {};  // in order of preference; not empty
  bool allow_soft_placement = false;
  PassOptions passes = {};
  // As PlanOptions::make_kernel.
  std::function<StatusOr<std::shared_ptr<Kernel>>(const Node&, Device*)> make_kernel = nullptr;
  // Called when every node has its device.
  std::function<void(const Graph&)> on_placed = nullptr;
};

// Takes a graph of its own. Feeds are placeholders or arguments; fetches keep their names.
StatusOr<std::unique_ptr<Plan>> CompileGraph(std::unique_ptr<Graph> graph, PassContext context,
                                             const CompileOptions& options);

}  // namespace millrace
