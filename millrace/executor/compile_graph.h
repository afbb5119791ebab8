// Compiles a graph and a signature to a plan: expands functions, places, rewrites, compiles.
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
  // See PlanOptions::make_kernel.
  std::function<StatusOr<std::shared_ptr<Kernel>>(const Node&, Device*)> make_kernel = nullptr;
  // Called when all nodes are placed.
  std::function<void(const Graph&)> on_placed = nullptr;
  // What the memory of functions that the graph calls is charged to; if null, the process.
  RefPtr<MemoryBudget> memory = nullptr;
};

// Places the nodes that have no device yet; see PlaceNodes. CompileGraph does it for the nodes of one step.
Status PlaceGraph(Graph* graph, const CompileOptions& options);

// Takes ownership of `graph`. Feeds are placeholders or arguments; fetches keep their names.
StatusOr<std::unique_ptr<Plan>> CompileGraph(std::unique_ptr<Graph> graph, PassContext context,
                                             const CompileOptions& options);

}  // namespace millrace
