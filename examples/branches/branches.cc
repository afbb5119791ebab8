// Model parallelism that gains time: the branches of one network do not need each other's results, so each is computed,
// forward and backward, by a task of its own at the same time. Only features and their gradients are sent.
//
//   millrace launch --ps 1 --workers 1 -- branches --threads=1     # both branches on one task
//   millrace launch --ps 2 --workers 1 -- branches --threads=1     # each on a task of its own
//
// Each ps serves the branches that are placed on it, with their variables; the worker is the client, joins the branches
// and computes the loss. Where branches are computed changes nothing in the result.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "examples/parse_flags.h"
#include "millrace/data/mnist.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string data_dir = "examples/data/mnist";
  int64_t branches = 2;
  int64_t steps = 100;
  int64_t batch_size = 100;
  int64_t filters = 16;
  int threads = 0;
};

// Convolutions with wide or tall windows: [batch, 28, 28, 1] -> [batch, 64].
Output Branch(const Scope& scope, const Output& images, bool wide, int64_t filters) {
  using layers::Padding;
  const std::array<int64_t, 2> window = wide ? std::array<int64_t, 2>{3, 7} : std::array<int64_t, 2>{7, 3};
  const layers::Conv2DOptions same{.padding = Padding::kSame, .activation = ops::Relu};
  Output x = layers::Conv2D(scope, images, filters, window, same);
  x = layers::MaxPool2D(scope, x, {2, 2});
  x = layers::Conv2D(scope, x, 2 * filters, window, same);
  x = layers::MaxPool2D(scope, x, {2, 2});
  return layers::Dense(scope, layers::Flatten(scope, x), 64, {.activation = ops::Relu});
}

Status Train(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> told, TaskConfig::FromEnvironment());
  const TaskConfig config = told.value_or(TaskConfig{});
  std::unique_ptr<Server> server;
  if (!config.cluster.jobs().empty()) {
    MR_ASSIGN_OR_RETURN(server, Server::Start(config.cluster, config.task.job, config.task.index,
                                              {.intra_op_threads = flags.threads, .inter_op_threads = flags.threads}));
    if (config.is_ps()) {
      server->Join();
      return absl::OkStatus();
    }
    if (config.num_workers() > 1) return InvalidArgument("the client is one worker; TF_CONFIG has more");
    if (config.num_ps() > flags.branches) {
      return InvalidArgument("there are ", config.num_ps(), " ps tasks for ", flags.branches, " branches");
    }
  }

  Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  const Scope client = server == nullptr ? root : root.WithDevice(config.task.name());
  const Output images = ops::Placeholder(client, DType::kFloat, {.shape = {-1, 28, 28, 1}});
  const Output labels = ops::Placeholder(client, DType::kInt64, {.shape = {-1}});
  std::vector<Output> features;
  for (int64_t i = 0; i < flags.branches; ++i) {
    Scope branch = root.SubScope(absl::StrCat("branch", i));
    if (config.num_ps() > 0) branch = branch.WithDevice(absl::StrCat("/job:ps/task:", i % config.num_ps()));
    features.push_back(Branch(branch, images, /*wide=*/i % 2 == 0, flags.filters));
  }
  const Output logits = layers::Dense(client, ops::ConcatV2(client, features, 1), 10);
  const Output loss = losses::SparseSoftmaxCrossEntropy(client, labels, logits);
  // Without a device: gradients are colocated with their ops, and updates with the variables.
  const Operation train = optimizers::GradientDescent({.learning_rate = 0.05}).Minimize(root, loss);
  const Operation init = GlobalVariablesInitializer(root);
  for (const Var& variable : GlobalVariables(root)) {
    const std::string& device = variable.handle().node()->requested_device();
    std::printf("%-28s %s\n", variable.var_name().c_str(), device.empty() ? "in this process" : device.c_str());
  }

  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root, {.target = server ? server->target() : "",
                                                                          .intra_op_threads = flags.threads}));
  MR_RETURN_IF_ERROR(session.Run(init));
  MR_ASSIGN_OR_RETURN(const Mnist data, LoadMnist(flags.data_dir));
  const int64_t count = data.train_labels.num_elements();
  MR_ASSIGN_OR_RETURN(const Tensor pictures, data.train_images.Reshaped({count, 28, 28, 1}));
  MR_ASSIGN_OR_RETURN(Dataset all, Dataset::FromTensors({pictures, data.train_labels}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches,
                      all.Shuffle({.seed = 1}).Repeat().Batch(flags.batch_size).Prefetch(2).MakeIterator());
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({images, labels}, {loss}, {train}));
  std::vector<Tensor> batch;
  std::chrono::steady_clock::time_point begin;
  for (int64_t i = 0; i <= flags.steps; ++i) {
    if (i == 1) begin = std::chrono::steady_clock::now();  // the first step compiles
    MR_RETURN_IF_ERROR(batches->Next(&batch).status());
    MR_ASSIGN_OR_RETURN(const Tensors result, step(batch));
    if (i % 20 == 0) std::printf("step %3lld  loss %.6f\n", static_cast<long long>(i), result[0].scalar<float>());
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("%lld branches on %d tasks: %.2f ms per step\n", static_cast<long long>(flags.branches),
              std::max(1, config.num_ps()), took.count() / static_cast<double>(flags.steps));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a network of parallel branches on MNIST, each on a task of its own.", "branches");
  app.option_defaults()->always_capture_default();
  app.add_option("--data_dir", flags.data_dir, "Directory with the four IDX files of MNIST, plain or .gz");
  app.add_option("--branches", flags.branches, "Branches; number i is on ps task i modulo their number")
      ->check(CLI::Range(1, 64));
  app.add_option("--train_steps,--steps", flags.steps)->check(CLI::PositiveNumber);
  app.add_option("--batch_size", flags.batch_size, "Images per step")->check(CLI::PositiveNumber);
  app.add_option("--filters", flags.filters, "Filters of the first convolutions")->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "Threads of each task; 0: one per core")->check(CLI::NonNegativeNumber);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (const Status status = Train(flags); !status.ok()) {
    std::cerr << "branches: " << status.message() << "\n";
    return 1;
  }
}
