// Trains a network on the MNIST digits and measures its accuracy on the 10,000 test images.
#include "millrace/data/mnist.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "examples/mnist/progress.h"
#include "examples/parse_flags.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string data_dir = "examples/data/mnist";
  std::string out;
  std::vector<int64_t> hidden_units = {256};
  int64_t batch_size = 100;
  double learning_rate = 0.001;
  std::string optimizer = "adam";
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t seed = 1;
  int threads = 0;
  int64_t log_every = 200;
  double min_accuracy = 0;
};

// ---- The model ----

struct Model {
  Output images, labels, loss, accuracy, num_correct;
  Operation train, init;
};

std::unique_ptr<Optimizer> MakeOptimizer(const std::string& name, double rate) {
  if (name == "sgd") return std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{rate});
  if (name == "momentum") return std::make_unique<optimizers::Momentum>(optimizers::MomentumOptions{rate});
  if (name == "rmsprop") return std::make_unique<optimizers::RMSProp>(optimizers::RMSPropOptions{rate});
  return std::make_unique<optimizers::Adam>(optimizers::AdamOptions{rate});
}

Model BuildModel(const Scope& scope, const Flags& flags) {
  Model m;
  m.images = ops::Placeholder(scope.WithOpName("images"), DType::kFloat, {.shape = {-1, 784}});
  m.labels = ops::Placeholder(scope.WithOpName("labels"), DType::kInt64, {.shape = {-1}});
  Output x = m.images;
  for (int64_t units : flags.hidden_units) x = layers::Dense(scope, x, units, {.activation = ops::Relu});
  Output logits = layers::Dense(scope.WithOpName("logits"), x, 10);
  m.loss = losses::SparseSoftmaxCrossEntropy(scope.WithOpName("loss"), m.labels, logits);
  m.accuracy = metrics::Accuracy(scope, m.labels, logits);
  m.num_correct = metrics::NumCorrect(scope, m.labels, logits);
  m.train =
      MakeOptimizer(flags.optimizer, flags.learning_rate)->Minimize(scope, m.loss, {.global_step = GlobalStep(scope)});
  m.init = GlobalVariablesInitializer(scope);
  return m;
}

// ---- Training and testing ----

Status Train(ClientSession& session, const Model& m, const Mnist& data, const Flags& flags, int64_t steps) {
  MR_ASSIGN_OR_RETURN(Dataset train, Dataset::FromTensors({data.train_images, data.train_labels}));
  train = train.Shuffle({.seed = static_cast<uint64_t>(flags.seed)}).Batch(flags.batch_size, true).Repeat().Prefetch(4);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, train.MakeIterator());
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({m.images, m.labels}, {}, {m.train}));
  MR_ASSIGN_OR_RETURN(Step told_step, session.MakeStep({m.images, m.labels}, {m.loss, m.accuracy}, {m.train}));

  Progress progress(steps, flags.log_every);
  std::vector<Tensor> batch;
  for (int64_t i = 1; i <= steps; ++i) {
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    if (!progress.IsDue(i)) {
      MR_RETURN_IF_ERROR(step(batch).status());
      continue;
    }
    MR_ASSIGN_OR_RETURN(Tensors told, told_step(batch));
    progress.Show(i, told[0].scalar<float>(), told[1].scalar<float>());
  }
  std::printf("Trained %lld steps in %.1f s\n", static_cast<long long>(steps), progress.seconds());
  return absl::OkStatus();
}

StatusOr<double> Test(ClientSession& session, const Model& m, const Mnist& data) {
  const int64_t total = data.test_labels.num_elements();
  int64_t correct = 0;
  for (int64_t i = 0; i < total; i += 1000) {
    const int64_t end = std::min<int64_t>(i + 1000, total);
    MR_ASSIGN_OR_RETURN(Tensors result, session.Run({{m.images, data.test_images.Slice(i, end)},
                                                     {m.labels, data.test_labels.Slice(i, end)}},
                                                    {m.num_correct}));
    correct += result[0].scalar<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(total);
}

// ---- What is written ----

Status WriteFile(const std::filesystem::path& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << contents;
  out.close();
  if (!out) return Internal("cannot write ", path.string());
  return absl::OkStatus();
}

// The directory given by --out, or a new one: mnist_run, mnist_run_2, ...
StatusOr<std::filesystem::path> MakeOutputFolder(const std::string& asked) {
  std::filesystem::path folder = asked;
  std::error_code error;
  for (int i = 1; asked.empty() && (folder.empty() || std::filesystem::exists(folder)); ++i) {
    folder = i == 1 ? "mnist_run" : absl::StrCat("mnist_run_", i);
  }
  std::filesystem::create_directories(folder, error);
  if (error) return InvalidArgument("cannot create the directory ", folder.string(), ": ", error.message());
  return folder;
}

// Writes the graph, and the timeline of one more training step.
Status WriteResults(ClientSession& session, const Scope& scope, const Model& m, const Mnist& data, const Flags& flags,
                    const std::filesystem::path& folder) {
  MR_ASSIGN_OR_RETURN(const pb::GraphDef graph, scope.ToGraphDef());
  MR_RETURN_IF_ERROR(WriteFile(folder / "graph.pb", graph.SerializeAsString()));
  RunMetadata metadata;
  Tensors results;
  const int64_t n = std::min<int64_t>(flags.batch_size, data.train_labels.num_elements());
  MR_RETURN_IF_ERROR(session.Run(RunOptions{.trace = true},
                                 {{m.images, data.train_images.Slice(0, n)}, {m.labels, data.train_labels.Slice(0, n)}},
                                 {m.loss}, {m.train}, &results, &metadata));
  MR_RETURN_IF_ERROR(WriteFile(folder / "timeline.json", ChromeTrace(metadata.step_stats())));
  std::cout << "Wrote " << (folder / "graph.pb").string() << " (the graph) and " << (folder / "timeline.json").string()
            << " (one step; open it in chrome://tracing or ui.perfetto.dev)\n";
  return absl::OkStatus();
}

Status Run(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  const int64_t examples = data.train_labels.num_elements();
  if (flags.batch_size > examples) {
    return InvalidArgument("--batch_size=", flags.batch_size, " is more than the ", examples, " training images");
  }
  const int64_t steps = flags.steps > 0 ? flags.steps : flags.epochs * (examples / flags.batch_size);
  MR_ASSIGN_OR_RETURN(const std::filesystem::path folder, MakeOutputFolder(flags.out));
  std::printf("Training 784-%s-10 on %lld images with %s, %lld at a time\n",
              absl::StrJoin(flags.hidden_units, "-").c_str(), static_cast<long long>(examples), flags.optimizer.c_str(),
              static_cast<long long>(flags.batch_size));

  Scope scope = Scope::NewRoot();
  scope.SetRandomSeed(flags.seed);
  const Model model = BuildModel(scope, flags);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope, {.intra_op_threads = flags.threads,
                                                                           .inter_op_threads = flags.threads}));
  MR_RETURN_IF_ERROR(session.Run(model.init));
  MR_RETURN_IF_ERROR(Train(session, model, data, flags, steps));
  MR_ASSIGN_OR_RETURN(const double accuracy, Test(session, model, data));
  std::printf("Test accuracy %.2f %% on %lld images\n", 100 * accuracy,
              static_cast<long long>(data.test_labels.num_elements()));
  std::fflush(stdout);
  MR_RETURN_IF_ERROR(WriteResults(session, scope, model, data, flags, folder));
  if (accuracy < flags.min_accuracy) {
    return FailedPrecondition("the test accuracy ", accuracy, " is below --min_accuracy=", flags.min_accuracy);
  }
  return absl::OkStatus();
}

CLI::Validator Above(double limit, bool or_equal) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        if (absl::SimpleAtod(text, &value) && (value > limit || (or_equal && value == limit))) return "";
        return absl::StrCat("'", text, "' is not ", or_equal ? "at least " : "above ", limit);
      },
      absl::StrCat(or_equal ? ">= " : "> ", limit));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a network on the MNIST digits and tests it.", "mnist");
  const CLI::Validator positive = Above(0, false), not_negative = Above(0, true);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--data_dir,--data", flags.data_dir, "Directory with the four IDX files of MNIST, plain or .gz")
      ->capture_default_str();
  app.add_option("--out", flags.out, "Directory for the graph and the timeline of a step (default: a new mnist_run)");
  app.add_option("--hidden_units", flags.hidden_units, "Sizes of the hidden layers, as in 256,128")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(positive)
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Images per step")->check(positive)->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate)->check(positive)->capture_default_str();
  app.add_option("--optimizer", flags.optimizer)
      ->check(CLI::IsMember({"adam", "sgd", "momentum", "rmsprop"}))
      ->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the training images")->check(positive)->capture_default_str();
  app.add_option("--train_steps,--steps", flags.steps, "Training steps, instead of --epochs")->check(not_negative);
  app.add_option("--seed", flags.seed, "Random seed of the initial weights and the order of the images")
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Number of threads; 0: one per core")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--log_every", flags.log_every, "Steps between progress lines when the output is not a terminal")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--min_accuracy", flags.min_accuracy, "Fail if the test accuracy is below this")
      ->check(CLI::Range(0.0, 1.0));
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;

  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "mnist: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
