// What supervision costs: steps/s of a perceptron in a bare session and in a MonitoredTrainingSession with summaries and checkpoints. See bench/README.md.
#include <filesystem>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/case.h"
#include "bench/measure.h"
#include "millrace/train/summary.h"

namespace millrace::bench {
namespace {

struct SupervisionFlags {
  int rounds = 3;
  double seconds = 12;
  int64_t save_summaries_steps = 100;
  double save_checkpoint_secs = 10;
  bool cluster = false;
  int threads = 1;
  std::string dir;
};

constexpr int kRows = 100;

struct Perceptron {
  explicit Perceptron(Scope s) : scope(std::move(s)) {
    scope.SetRandomSeed(1);
    x = ops::Placeholder(scope, DType::kFloat, {.shape = {kRows, 784}});
    labels = ops::Placeholder(scope, DType::kInt32, {.shape = {kRows}});
    const Output logits = layers::Dense(scope, layers::Dense(scope, x, 100, {.activation = ops::Relu}), 10);
    loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits);
    global_step = GlobalStep(scope);
    train = optimizers::GradientDescent({.learning_rate = 0.01}).Minimize(scope, loss, {.global_step = global_step});
    ScalarSummary(scope, "loss", loss);
  }
  Scope scope;
  Output x, labels, loss;
  Var global_step;
  Operation train;
};

// Steps per second over about `seconds`. Both sides learn loss and global step of every step.
template <typename Step>
double RateOf(double seconds, const Step& step) {
  const std::vector<Tensor> feeds = {RandomFeatures(Shape({kRows, 784})), RandomLabels(kRows, 10)};
  Tensors results;
  return Rate(seconds, [&] { Check(step(feeds, &results)); });
}

// The ends of a cluster of a parameter server and a worker in this process.
std::vector<std::unique_ptr<Server>> StartCluster(const SupervisionFlags& flags) {
  std::vector<std::unique_ptr<Server>> servers;
  if (!flags.cluster) return servers;
  auto ps = Check(Server::Start(Check(ClusterSpec::Of({{"ps", {"localhost:0"}}})), "ps", 0, {.intra_op_threads = flags.threads}));
  const ClusterSpec cluster = Check(ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ps->port())}}, {"worker", {"localhost:0"}}}));
  servers.push_back(std::move(ps));
  servers.push_back(Check(Server::Start(cluster, "worker", 0, {.intra_op_threads = flags.threads})));
  return servers;
}

void Run(const SupervisionFlags& flags) {
  const auto servers = StartCluster(flags);
  SessionOptions options{.intra_op_threads = flags.threads, .inter_op_threads = flags.threads};
  if (flags.cluster) options.target = servers[1]->target();
  const auto scope = [&](const std::string& prefix) {
    const Scope root = Scope::NewRoot().SubScope(prefix);
    return flags.cluster ? root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:0"})) : root;
  };
  std::string dir = (std::filesystem::path(flags.dir.empty() ? std::filesystem::temp_directory_path().string() : flags.dir) / "millrace_supervision_XXXXXX").string();
  if (mkdtemp(dir.data()) == nullptr) Check(NotFound("cannot make ", dir));
  std::vector<double> bare_rates, watched_rates;
  for (int round = 0; round < flags.rounds; ++round) {
    {
      const Perceptron model(scope("bare"));
      const Operation init = GlobalVariablesInitializer(model.scope);
      ClientSession session = Check(ClientSession::Create(model.scope, options));
      Check(session.Run(init));
      const Step step = Check(session.MakeStep({model.x, model.labels}, {model.loss, model.global_step}, {model.train}));
      bare_rates.push_back(RateOf(flags.seconds, [&](const auto& feeds, Tensors* results) { return step.callable().Run(feeds, results); }));
    }
    {
      const Perceptron model(scope("watched"));
      auto session = Check(MonitoredTrainingSession(
          model.scope, {.master = options.target,
                        .checkpoint_dir = absl::StrCat(dir, "/", round),
                        .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = int64_t{1} << 40}), std::make_shared<NanTensorHook>(model.loss)},
                        .save_checkpoint_secs = absl::Seconds(flags.save_checkpoint_secs),
                        .save_summaries_steps = flags.save_summaries_steps,
                        .loss = model.loss,
                        .session = options}));
      const MonitoredStep step = Check(session->MakeStep({model.x, model.labels}, {model.loss, model.global_step}, {model.train}));
      watched_rates.push_back(RateOf(flags.seconds, [&](const auto& feeds, Tensors* results) { return step.Run(feeds, results); }));
      Check(session->Close());
    }
    std::printf("round %d: bare %.1f steps/s, supervised %.1f steps/s: %+.2f %%\n", round + 1, bare_rates.back(), watched_rates.back(),
                100 * (bare_rates.back() / watched_rates.back() - 1));
    std::fflush(stdout);
  }
  std::filesystem::remove_all(dir);
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::printf("median: bare %.1f steps/s, supervised %.1f steps/s: supervision costs %.2f %%\n", median(bare_rates), median(watched_rates),
              100 * (median(bare_rates) / median(watched_rates) - 1));
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  millrace::bench::SupervisionFlags flags;
  CLI::App app("Steps/s of a perceptron (784-100-10, 100 rows) in a bare session and in a MonitoredTrainingSession, in turns.");
  app.add_option("--rounds", flags.rounds, "how often both are measured")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "of one measurement")->capture_default_str();
  app.add_option("--save_summaries_steps", flags.save_summaries_steps)->capture_default_str();
  app.add_option("--save_checkpoint_secs", flags.save_checkpoint_secs)->capture_default_str();
  app.add_option("--threads", flags.threads, "of each session or server")->capture_default_str();
  app.add_option("--dir", flags.dir, "where a folder for checkpoints and events is made, and removed");
  app.add_flag("--cluster", flags.cluster, "a parameter server and a worker in this process, instead of no server");
  CLI11_PARSE(app, argc, argv);
  millrace::bench::Run(flags);
  return 0;
}
