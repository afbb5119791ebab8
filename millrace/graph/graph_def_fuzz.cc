// Fuzzes GraphDef: whatever imports must survive shape inference, passes and a round trip.
#include <cstddef>
#include <cstdint>

#include "millrace/graph/graph_def.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/graph/shape_inference.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  pb::GraphDef def;
  if (!def.ParseFromArray(data, static_cast<int>(size))) return 0;
  Graph graph;
  if (!ImportGraphDef(def, &graph).ok()) {
    MR_CHECK(graph.num_nodes() == 0 && graph.max_id() == 0);
    return 0;
  }
  MR_CHECK(InferShapes(&graph, /*lenient=*/true).ok());
  pb::GraphDef exported = ExportGraphDef(graph);
  Graph again;
  MR_CHECK(ImportGraphDef(exported, &again).ok());
  MR_CHECK(GraphToString(again) == GraphToString(graph));

  // The last node is the target; passes must cope with whatever it depends on.
  if (graph.num_nodes() == 0) return 0;
  PassContext context;
  context.targets = {graph.nodes().back()};
  MR_CHECK(RunPasses(&graph, context, {}).ok());
  MR_CHECK(TopologicalOrder(graph).ok());
  return 0;
}
