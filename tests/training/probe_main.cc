// training_probe: a training program for tests of the files that it writes.
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "millrace/millrace.h"

namespace millrace {
namespace {

// What is saved and restored: numbers, text, a partitioned table with its optimizer's slots, a step.
struct Model {
  explicit Model(int parts)
      : w(root.SubScope("dense"), "w", Input({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}})),
        words(root, "words", Input({"hello", "world"}), {.dtype = DType::kString, .trainable = false}),
        table(root, "table", {5, 2}, init::Constant(0.5), FixedSizePartitioner(parts)),
        step(GlobalStep(root)) {
    const Output loss =
        ops::Sum(root, ops::Square(root, table.Value(root)), {0, 1}) + ops::Sum(root, ops::Square(root, w), {0, 1});
    train = optimizers::Momentum({.learning_rate = 0.25, .momentum = 0.5})
                .Minimize(root.WithOpName("train"), loss, {.global_step = step});
    whole = table.Value(root);
  }
  Scope root = Scope::NewRoot();
  Var w, words;
  PartitionedVar table;
  Var step;
  Operation train;
  Output whole;
};

Status Save(const std::string& directory, int parts, int steps, bool sharded) {
  Model model(parts);
  Saver saver(model.root, {.sharded = sharded});
  const Operation init = GlobalVariablesInitializer(model.root);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(model.root));
  MR_RETURN_IF_ERROR(session.Run(init));
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(session.Run(model.train));
  MR_ASSIGN_OR_RETURN(const std::string prefix,
                      saver.Save(&session, JoinPath(directory, "model.ckpt"), {.global_step = steps}));
  std::cout << prefix << std::endl;
  return absl::OkStatus();
}

void Print(const char* name, const Tensor& tensor) {
  std::cout << name;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    std::cout << " ";
    if (tensor.dtype() == DType::kString) std::cout << tensor.data<std::string>()[i];
    if (tensor.dtype() == DType::kFloat) std::cout << tensor.data<float>()[i];
    if (tensor.dtype() == DType::kInt64) std::cout << tensor.data<int64_t>()[i];
  }
  std::cout << std::endl;
}

Status Restore(const std::string& directory, int parts) {
  Model model(parts);
  Saver saver(model.root);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(model.root));
  MR_ASSIGN_OR_RETURN(const std::string prefix, FindCheckpoint(directory));
  MR_RETURN_IF_ERROR(saver.Restore(&session, prefix));
  MR_ASSIGN_OR_RETURN(const Tensors values, session.Run({model.w, model.words, model.whole, model.step}));
  Print("w", values[0]);
  Print("words", values[1]);
  Print("table", values[2]);
  Print("step", values[3]);
  return absl::OkStatus();
}

// Ten steps with everything that TensorBoard shows.
Status Log(const std::string& directory) {
  Scope root = Scope::NewRoot();
  const Var w(root.SubScope("layer"), "w", {100}, init::TruncatedNormal({.seed = 1}));
  const Var step = GlobalStep(root);
  const Output loss = ops::Mean(root, ops::Square(root, w), {0});
  const Operation train = optimizers::GradientDescent({.learning_rate = 5}).Minimize(root, loss, {.global_step = step});
  ScalarSummary(root, "loss", loss);
  HistogramSummary(root.SubScope("weights"), "w", w);
  ImageSummary(root, "pixels", ops::Reshape(root, w, {1, 10, 10, 1}));
  TextSummary(root, "note", "Written by **Millrace**");
  const Output all = MergeAllSummaries(root);
  const Operation init = GlobalVariablesInitializer(root);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, FileWriter::Create(directory));
  MR_RETURN_IF_ERROR(writer->AddGraph(root));
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root));
  MR_RETURN_IF_ERROR(session.Run(init));
  for (int64_t i = 0; i < 10; ++i) {
    Tensors results;
    RunMetadata metadata;
    MR_RETURN_IF_ERROR(session.Run({.trace = i == 5}, {}, {all}, {train}, &results, &metadata));
    MR_RETURN_IF_ERROR(writer->AddSummary(results[0], i));
    if (i == 5) MR_RETURN_IF_ERROR(writer->AddRunMetadata(metadata, "step 5", i));
    MR_RETURN_IF_ERROR(writer->AddScalar("by_hand", 0.5 * static_cast<double>(i), i));
  }
  return writer->Close();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  CLI::App app{"A training program for tests"};
  std::string path;
  int parts = 2, steps = 3;
  bool sharded = false;
  CLI::App* save = app.add_subcommand("save", "Trains and saves");
  CLI::App* restore = app.add_subcommand("restore", "Restores and prints");
  CLI::App* log = app.add_subcommand("log", "Writes events");
  for (CLI::App* command : {save, restore, log}) {
    command->add_option("path", path, "The folder, or a checkpoint")->required();
    command->add_option("--parts", parts, "Parts of the table");
    command->add_option("--steps", steps, "Steps before the save");
    command->add_flag("--sharded", sharded, "A shard for each task");
  }
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  const millrace::Status status = save->parsed()      ? millrace::Save(path, parts, steps, sharded)
                                  : restore->parsed() ? millrace::Restore(path, parts)
                                                      : millrace::Log(path);
  if (!status.ok()) std::cerr << "training_probe: " << status << std::endl;
  return status.ok() ? 0 : 1;
}
