// The client of bench/save_while_training: trains through a cluster's worker, saves periodically, and counts steps.
#include <algorithm>
#include <atomic>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

struct Flags {
  std::string target;
  std::string directory;
  int ps = 2;
  int megabytes = 1000;
  int saves = 4;
  double seconds = 5;
  std::string kind = "embedding";
};

struct Interval {
  int64_t steps = 0;
  double seconds = 0;
  double rate() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
};

double Now() { return absl::ToDoubleSeconds(Clock::Real()->Now() - absl::UnixEpoch()); }

Status Measure(const Flags& flags) {
  const Scope root = Scope::NewRoot().WithDeviceFunction(
      ReplicaDeviceSetter({.ps_tasks = flags.ps, .worker_device = "/job:worker/task:0"}));
  // A table with nearly all of the bytes, and a network of MNIST's size on top of some of its rows.
  constexpr int64_t kWidth = 64, kBatch = 100, kIds = 12;
  const int64_t rows = int64_t{flags.megabytes} * 1000000 / (kWidth * 4);
  const bool embedding = flags.kind == "embedding";
  const PartitionedVar table(root, "table", {rows, kWidth}, init::Constant(0.01), FixedSizePartitioner(2 * flags.ps),
                             {.trainable = embedding});
  const Output ids =
      ops::RandomUniformInt(root, {static_cast<int>(kBatch), static_cast<int>(kIds)}, 0, static_cast<int>(rows));
  const int width = static_cast<int>(kIds * kWidth);
  const Output x = embedding ? ops::Reshape(root, EmbeddingLookup(root, table, ids), {static_cast<int>(kBatch), width})
                             : ops::RandomUniform(root, {static_cast<int>(kBatch), width}, DType::kFloat);
  const Output h = layers::Dense(root, x, 100, {.activation = ops::Relu});
  const Output labels = ops::RandomUniformInt(root, {static_cast<int>(kBatch)}, 0, 10);
  const Output loss = losses::SparseSoftmaxCrossEntropy(root, labels, layers::Dense(root, h, 10));
  const Operation train =
      optimizers::GradientDescent({.learning_rate = 0.01}).Minimize(root, loss, {.global_step = GlobalStep(root)});
  Saver saver(root, {.max_to_keep = 1, .sharded = true});
  const Operation init = GlobalVariablesInitializer(root);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(root, {.target = flags.target}));
  MR_RETURN_IF_ERROR(session.Run(init));
  MR_ASSIGN_OR_RETURN(const Step step, session.MakeStep({}, {}, {train}));

  std::atomic<int64_t> steps = 0;
  std::atomic<bool> stop = false;
  Status trained;
  std::thread training([&] {
    while (!stop && trained.ok()) {
      trained = step().status();
      ++steps;
    }
  });
  const auto count = [&](const std::function<Status()>& meanwhile, Interval* interval) {
    const int64_t before = steps;
    const double begin = Now();
    const Status status = meanwhile();
    interval->steps += steps - before;
    interval->seconds += Now() - begin;
    return status;
  };
  const auto wait = [&] {
    Notification never;
    never.WaitFor(absl::Seconds(flags.seconds));
    return absl::OkStatus();
  };
  Interval warm, alone, saving;
  Status status = count(wait, &warm);
  for (int i = 0; i < flags.saves && status.ok() && trained.ok(); ++i) {
    Interval quiet, busy;
    status = count(wait, &quiet);
    if (status.ok())
      status = count(
          [&] { return saver.Save(&session, JoinPath(flags.directory, "model"), {.global_step = i}).status(); }, &busy);
    std::cout << absl::StrFormat("  %.1f steps/s, during a save of %.2f s %.1f\n", quiet.rate(), busy.seconds,
                                 busy.rate())
              << std::flush;
    alone.steps += quiet.steps, alone.seconds += quiet.seconds;
    saving.steps += busy.steps, saving.seconds += busy.seconds;
  }
  stop = true;
  training.join();
  MR_RETURN_IF_ERROR(trained);
  MR_RETURN_IF_ERROR(status);
  std::cout << absl::StrFormat(
      "{\"steps_per_s\": %.2f, \"steps_per_s_saving\": %.2f, \"ratio\": %.3f, \"save_s\": %.2f}\n", alone.rate(),
      saving.rate(), saving.rate() / alone.rate(), saving.seconds / flags.saves);
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app{"Trains over a cluster and saves meanwhile"};
  app.add_option("--target", flags.target, "The worker: grpc://host:port")->required();
  app.add_option("--directory", flags.directory, "Directory for checkpoints")->required();
  app.add_option("--ps", flags.ps, "Number of parameter servers")->capture_default_str();
  app.add_option("--megabytes", flags.megabytes, "Size of the model")->capture_default_str();
  app.add_option("--saves", flags.saves, "Number of saves")->capture_default_str();
  app.add_option("--kind", flags.kind,
                 "embedding: rows of the large table are trained; frozen: the table is not trained")
      ->check(CLI::IsMember({"embedding", "frozen"}))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Seconds of training between saves")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const millrace::Status status = millrace::Measure(flags);
  if (!status.ok()) std::cerr << "save_while_training: " << status << std::endl;
  return status.ok() ? 0 : 1;
}
