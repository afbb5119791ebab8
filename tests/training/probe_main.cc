// training_probe: a training program for tests of the files that it writes.
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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
  std::cout << name << std::setprecision(9);
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

// y = x w + b after some steps, and a table of words from a file, as a SavedModel of two graphs.
Status Export(const std::string& directory, const std::string& words_file, int steps) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kFloat, {.shape = PartialShape({-1, 2})});
  const Var w(root, "w", Input({{1.0f, 2.0f}, {3.0f, 4.0f}})), b(root, "b", Input({0.5f, 0.25f}));
  const Output y = ops::Add(root.WithOpName("y"), ops::MatMul(root, x, w), b);
  const Output loss = ops::Mean(root.WithOpName("loss"), ops::Square(root, y), {0, 1});
  const Operation train = optimizers::Adam({.learning_rate = 0.1})
                              .Minimize(root.WithOpName("train"), loss, {.global_step = GlobalStep(root)});
  const Output file = ops::Const(root.WithOpName("words_file"), words_file);
  const Output words = ops::Placeholder(root.WithOpName("words"), DType::kString, {.shape = PartialShape({-1})});
  const Output table = Op(root, "HashTableV2", {}, {{"key_dtype", DType::kString}, {"value_dtype", DType::kInt64}});
  const Operation read_words = AddOp(root, "InitializeTableFromTextFileV2", {table, file},
                                     {{"key_index", -2}, {"value_index", -1}, {"vocab_size", -1}, {"delimiter", "\t"}});
  const Output ids = Op(root.WithOpName("ids"), "LookupTableFindV2", {table, words, int64_t{-1}});
  const Operation init = GlobalVariablesInitializer(root);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root));
  MR_RETURN_IF_ERROR(session.Run(init));
  const Tensor batch = Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4});
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(session.Run({{x, batch}}, {}, {train}).status());
  MR_ASSIGN_OR_RETURN(const Tensors values, session.Run({w, b}));
  Print("w", values[0]);
  Print("b", values[1]);

  AddMetaGraphOptions options;
  options.assets = {file};
  options.main_op = read_words;
  options.collections = {{"train_op", {train.name()}}};
  options.strip_default_attrs = true;
  SavedModelBuilder builder(directory);
  MR_RETURN_IF_ERROR(
      builder.AddMetaGraphAndVariables(root, &session, {"serve"},
                                       {{"serving_default", PredictSignature({{"x", x}}, {{"y", y}})},
                                        {"look_up", PredictSignature({{"words", words}}, {{"ids", ids}})}},
                                       options));
  const Scope other = Scope::NewRoot();
  const Var same(other, "w", {2, 2}, init::Zeros());
  MR_RETURN_IF_ERROR(builder.AddMetaGraph(other, {"train"}, {}));
  return builder.Save();
}

// Trains an Estimator and exports it for numbers and for serialized Examples. Prints both folders and the weights.
Status ExportEstimator(const std::string& directory, int steps) {
  const ModelFn model = [](const Scope& scope, const ModelArgs& args) {
    const Var w(scope, "w", {2, 1}, init::Zeros()), b(scope, "b", {1}, init::Zeros());
    const Output y = ops::MatMul(scope, args.feature(scope), w) + b;
    EstimatorSpec spec{.predictions = {{"y", y}}};
    spec.export_outputs = {{"serving_default", PredictOutput(spec.predictions)},
                           {"regress", RegressionOutput(y)},
                           {"classify", ClassificationOutput(ops::Sigmoid(scope, y))}};
    if (args.mode == ModelMode::kPredict) return spec;
    spec.loss = losses::MeanSquaredError(scope, args.label(scope), y);
    spec.optimizer = std::make_shared<optimizers::Adam>(optimizers::AdamOptions{.learning_rate = 0.1});
    return spec;
  };
  const InputFn input = [](const Scope&, const InputContext& context) -> StatusOr<EstimatorInput> {
    MR_ASSIGN_OR_RETURN(const Dataset points, Dataset::FromTensors({Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, -4}),
                                                                    Tensor::Of<float>(Shape({2, 1}), {1, -1})}));
    return EstimatorInput{.dataset = points.Batch(2).Repeat(context.mode == ModelMode::kTrain ? -1 : 1)};
  };
  MR_ASSIGN_OR_RETURN(const RunConfig config,
                      RunConfig::Of({}, {.model_dir = JoinPath(directory, "run"), .save_checkpoints_steps = 2}));
  MR_ASSIGN_OR_RETURN(Estimator estimator, Estimator::Create(model, config));
  const ServingInputFn raw = RawServingInput({{"x", {DType::kFloat, {-1, 2}}}});
  const ServingInputFn examples = ParsingServingInput({{"x", {.shape = {2}}}});
  MR_RETURN_IF_ERROR(TrainAndEvaluate(estimator, {.input = input, .max_steps = steps},
                                      {.input = input,
                                       .exporters = {std::make_shared<LatestExporter>("raw", raw),
                                                     std::make_shared<FinalExporter>("examples", examples)},
                                       .throttle = absl::ZeroDuration()})
                         .status());
  for (const char* name : {"w", "b"}) {
    MR_ASSIGN_OR_RETURN(const Tensor value, estimator.GetVariableValue(name));
    Print(name, value);
  }
  return absl::OkStatus();
}

// Imports a SavedModel of TensorFlow 1 that has a training op, and runs that.
Status TrainOn(const std::string& directory, int steps, const std::vector<float>& x) {
  const Scope root = Scope::NewRoot();
  MR_ASSIGN_OR_RETURN(const ImportedSavedModel model,
                      ImportSavedModel(root.SubScope("old"), directory, {"serve", "cpu"}));
  MR_ASSIGN_OR_RETURN(const std::vector<Operation> train, model.graph().Ops("train_op"));
  MR_ASSIGN_OR_RETURN(const SignatureTensors inputs, model.Inputs("serving_default"));
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root));
  MR_RETURN_IF_ERROR(model.Restore(&session));
  const Tensor batch = Tensor::FromSpan<float>(x, Shape({static_cast<int64_t>(x.size()) / 2, 2}));
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(session.Run({{inputs.at("x"), batch}}, {}, train).status());
  for (const Var& variable : TrainableVariables(root)) {
    MR_ASSIGN_OR_RETURN(const Tensors value, session.Run({variable}));
    Print(variable.var_name().c_str() + 4, value[0]);
  }
  MR_ASSIGN_OR_RETURN(const Tensors step, session.Run({GlobalStep(root)}));
  Print("step", step[0]);
  return absl::OkStatus();
}

// Imports a SavedModel of TensorFlow 2, trains it by gradient descent on the mean square of its output, and prints what
// it predicts then.
Status FineTune(const std::string& directory, int steps, const std::vector<float>& values) {
  const Scope root = Scope::NewRoot();
  MR_ASSIGN_OR_RETURN(const ImportedSavedModel model, ImportSavedModel(root.SubScope("old"), directory));
  MR_ASSIGN_OR_RETURN(const SignatureTensors inputs, model.Inputs(kDefaultSignature));
  MR_ASSIGN_OR_RETURN(const SignatureTensors outputs, model.Outputs(kDefaultSignature));
  const Output x = inputs.begin()->second, y = outputs.begin()->second;
  const Operation train =
      optimizers::GradientDescent({.learning_rate = 0.1}).Minimize(root, ops::Mean(root, ops::Square(root, y), {0, 1}));
  const Operation init = GlobalVariablesInitializer(root);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root));
  MR_RETURN_IF_ERROR(session.Run(init));
  std::vector<int64_t> dims = {static_cast<int64_t>(values.size())};
  for (int i = 1; i < x.shape().rank(); ++i) {
    dims.push_back(x.shape().dim(i));
    dims[0] /= dims.back();
  }
  const Tensor batch = Tensor::FromSpan<float>(values, Shape(dims));
  for (int i = 0; i < steps; ++i) MR_RETURN_IF_ERROR(session.Run({{x, batch}}, {}, {train}).status());
  MR_ASSIGN_OR_RETURN(const Tensors predicted, session.Run({{x, batch}}, {y}));
  Print("y", predicted[0]);
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
  AudioSummary(root, "tone", ops::Reshape(root, w, {1, 100}), 8000.0f);
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
  std::string path, words;
  int parts = 2, steps = 3;
  bool sharded = false;
  std::string x;
  std::vector<std::pair<CLI::App*, std::function<millrace::Status()>>> commands;
  const auto add = [&](const char* name, const char* what, std::function<millrace::Status()> run) {
    CLI::App* const command = app.add_subcommand(name, what);
    command->add_option("path", path, "The folder, or a checkpoint")->required();
    command->add_option("--parts", parts, "Parts of the table");
    command->add_option("--steps", steps, "Steps before the save");
    command->add_flag("--sharded", sharded, "A shard for each task");
    command->add_option("--words", words, "The file of words for a table");
    command->add_option("--x", x, "The values of a batch");
    commands.emplace_back(command, std::move(run));
  };
  add("save", "Trains and saves", [&] { return millrace::Save(path, parts, steps, sharded); });
  add("restore", "Restores and prints", [&] { return millrace::Restore(path, parts); });
  add("log", "Writes events", [&] { return millrace::Log(path); });
  add("export", "Trains and exports a SavedModel", [&] { return millrace::Export(path, words, steps); });
  add("export_estimator", "Trains and exports an Estimator", [&] { return millrace::ExportEstimator(path, steps); });
  const auto numbers = [&] {
    std::istringstream text(x);
    return std::vector<float>(std::istream_iterator<float>(text), std::istream_iterator<float>());
  };
  add("train_on", "Runs the training op of a SavedModel", [&] { return millrace::TrainOn(path, steps, numbers()); });
  add("fine_tune", "Trains a SavedModel that has none", [&] { return millrace::FineTune(path, steps, numbers()); });
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  millrace::Status status;
  for (const auto& [command, run] : commands) {
    if (command->parsed()) status = run();
  }
  if (!status.ok()) std::cerr << "training_probe: " << status << std::endl;
  return status.ok() ? 0 : 1;
}
