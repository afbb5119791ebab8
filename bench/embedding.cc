#include "bench/embedding.h"

#include "bench/measure.h"

namespace millrace::bench {
namespace {

constexpr int64_t kRows = 10'000'000, kColumns = 64, kBatch = 4096;

// Gathers 4,096 random rows, changes them and adds them back. `reference` selects a TF1 reference variable instead of a
// resource variable.
double StepsPerSecond(const Flags& flags, bool reference) {
  auto session = Check(Session::Create(Options(flags)));
  Graph graph;
  GraphBuilder b(&graph);
  const PartialShape shape({kRows, kColumns});
  const Endpoint table = reference ? b.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", shape}}, "table")
                                   : b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", shape}}, "table");
  const Endpoint zeros =
      b.Op("Fill", {b.Ints({static_cast<int32_t>(kRows), static_cast<int32_t>(kColumns)}), b.Scalar<float>(0)});
  const Node* init = reference ? b.AddNode("Assign", {table, zeros})
                               : b.AddNode("AssignVariableOp", {table, zeros}, {{"dtype", DType::kFloat}});
  const Endpoint ids = b.Op("RandomUniformInt",
                            {b.Ints({static_cast<int32_t>(kBatch)}), b.Scalar<int64_t>(0), b.Scalar<int64_t>(kRows)});
  const Endpoint rows = reference ? b.Op("GatherV2", {b.Op("Identity", {table}), ids, b.Scalar<int32_t>(0)})
                                  : b.Op("ResourceGather", {table, ids}, {{"dtype", DType::kFloat}});
  const Endpoint grads = b.Op("AddV2", {b.Op("Mul", {rows, b.Scalar<float>(0.01f)}), b.Scalar<float>(1)});
  const Node* update = reference ? b.AddNode("ScatterAdd", {table, ids, grads})
                                 : b.AddNode("ResourceScatterAdd", {table, ids, grads}, {{"dtype", DType::kFloat}});
  Check(b.status());
  Check(session->Extend(ExportGraphDef(graph)));
  Check(session->RunTargets({init->name()}));
  auto step = Check(session->MakeCallable({.targets = {update->name()}}));
  std::vector<Tensor> results;
  return Rate(flags.seconds, [&] { Check(step->Run({}, &results)); });
}

}  // namespace

void Embedding(const Flags& flags) {
  Emit(flags, "embedding_ref", "steps/s", StepsPerSecond(flags, true));
  Emit(flags, "embedding_resource", "steps/s", StepsPerSecond(flags, false));
}

}  // namespace millrace::bench
