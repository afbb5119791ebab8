// Measures the cost of supervision: steps/s of a perceptron in a plain session and in a MonitoredTrainingSession with
// summaries and checkpoints, or in an Estimator's training. See bench/README.md.
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/case.h"
#include "millrace/train/summary.h"

namespace millrace::bench {
namespace {

struct SupervisionFlags {
  int turns = 60;
  double seconds = 0.5;
  int64_t save_summaries_every_steps = 100;
  double save_checkpoint_secs = 10;
  bool cluster = false;
  bool estimator = false;
  int threads = 1;
  std::string directory;
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

// One side of the comparison, over all its turns.
struct Side {
  const char* name;
  std::function<Status(const std::vector<Tensor>& feeds, Tensors* results)> step;
  int64_t steps = 0;
  absl::Duration wall = {}, cpu = {};  // cpu: of the whole process, without other processes
  std::vector<double> rates = {};

  void Turn(double seconds, const std::vector<Tensor>& feeds) {
    const absl::Time begun = absl::Now();
    const absl::Duration cpu_before = ProcessCpu();
    int64_t made = 0;
    Tensors results;
    while (absl::Now() - begun < absl::Seconds(seconds)) {
      for (int i = 0; i < 10; ++i) Check(step(feeds, &results));
      made += 10;
    }
    Add(made, absl::Now() - begun, ProcessCpu() - cpu_before);
  }
  void Add(int64_t made, absl::Duration took, absl::Duration took_cpu) {
    cpu += took_cpu;
    wall += took;
    steps += made;
    rates.push_back(static_cast<double>(made) / absl::ToDoubleSeconds(took));
  }
  double median() const {
    std::vector<double> sorted = rates;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double rate() const { return static_cast<double>(steps) / absl::ToDoubleSeconds(wall); }
  double cpu_us() const { return absl::ToDoubleMicroseconds(cpu) / static_cast<double>(steps); }
  void Print() const {
    std::printf("%-12s %9.1f steps/s (median turn %.1f), %.2f us of CPU a step\n", name, rate(), median(), cpu_us());
  }

  static absl::Duration ProcessCpu() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  }
};

// An Estimator's training, which asks for its batches: the other side has its turns in between.
void TrainByEstimator(const SupervisionFlags& flags, const SessionOptions& session, const std::string& directory,
                      const std::vector<Tensor>& feeds, Side& bare, Side& watched) {
  const ModelFn model = [](const Scope& scope, const ModelArgs& args) {
    const Output hidden = layers::Dense(scope, args.feature(scope), 100, {.activation = ops::Relu});
    EstimatorSpec spec;
    spec.loss = losses::SparseSoftmaxCrossEntropy(scope, args.label(scope), layers::Dense(scope, hidden, 10));
    spec.optimizer =
        std::make_shared<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 0.01});
    ScalarSummary(scope, "loss", spec.loss);
    return spec;
  };
  const auto batches = [&](uint64_t) -> Generator {
    return [&, turns = 0, calls = 0, steps = int64_t{0}, begun = absl::Now(),
            cpu = absl::ZeroDuration()](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      const int number = calls++;
      const absl::Duration took = absl::Now() - begun;
      if (number > 50 && took < absl::Seconds(flags.seconds)) ++steps;
      if (number == 50 || (number > 50 && took >= absl::Seconds(flags.seconds))) {
        if (number > 50) watched.Add(steps + 1, took, Side::ProcessCpu() - cpu);
        if (number > 50 && ++turns == flags.turns) return false;
        bare.Turn(flags.seconds, feeds);
        steps = 0;
        begun = absl::Now();
        cpu = Side::ProcessCpu();
      }
      *element = feeds;
      return true;
    };
  };
  const RunConfig config = Check(RunConfig::Of({}, {.model_dir = directory,
                                                    .tf_random_seed = 1,
                                                    .save_summary_steps = flags.save_summaries_every_steps,
                                                    .save_checkpoints_secs = absl::Seconds(flags.save_checkpoint_secs),
                                                    .log_step_count_steps = 1000,
                                                    .session_config = session}));
  Estimator estimator = Check(Estimator::Create(model, config));
  Check(estimator.Train(
      [&](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
        return EstimatorInput{.dataset = Dataset::FromGenerator(batches),
                              .shapes = {PartialShape(feeds[0].shape()), PartialShape(feeds[1].shape())}};
      },
      {.max_steps = int64_t{1} << 40}));
}

// A parameter server and a worker in this process.
std::vector<std::unique_ptr<Server>> StartCluster(const SupervisionFlags& flags) {
  std::vector<std::unique_ptr<Server>> servers;
  if (!flags.cluster) return servers;
  auto ps = Check(
      Server::Start(Check(ClusterSpec::Of({{"ps", {"localhost:0"}}})), "ps", 0, {.intra_op_threads = flags.threads}));
  const ClusterSpec cluster =
      Check(ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ps->port())}}, {"worker", {"localhost:0"}}}));
  servers.push_back(std::move(ps));
  servers.push_back(Check(Server::Start(cluster, "worker", 0, {.intra_op_threads = flags.threads})));
  return servers;
}

void Run(const SupervisionFlags& flags) {
  const auto servers = StartCluster(flags);
  SessionOptions options{.intra_op_threads = flags.threads, .inter_op_threads = flags.threads};
  if (flags.cluster) {
    options.target = servers[1]->target();
    options.cluster = servers[1]->cluster().ToDef();
  }
  const auto scope = [&](const std::string& prefix) {
    const Scope root = Scope::NewRoot().SubScope(prefix);
    return flags.cluster
               ? root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1, .worker_device = "/job:worker/task:0"}))
               : root;
  };
  std::string directory =
      (std::filesystem::path(flags.directory.empty() ? std::filesystem::temp_directory_path().string()
                                                     : flags.directory) /
       "millrace_supervision_XXXXXX")
          .string();
  if (mkdtemp(directory.data()) == nullptr) Check(NotFound("cannot make ", directory));
  const Perceptron bare_model(scope("bare")), watched_model(scope("watched"));
  const Operation init = GlobalVariablesInitializer(bare_model.scope);
  ClientSession bare_session = Check(ClientSession::Create(bare_model.scope, options));
  Check(bare_session.Run(init));
  const Step bare_step = Check(bare_session.MakeStep({bare_model.x, bare_model.labels},
                                                     {bare_model.loss, bare_model.global_step}, {bare_model.train}));
  const std::vector<Tensor> feeds = {RandomFeatures(Shape({kRows, 784})), RandomLabels(kRows, 10)};
  Side bare{"bare", [&](const auto& f, Tensors* results) { return bare_step.callable().Run(f, results); }};
  Side watched{flags.estimator ? "Estimator" : "supervised", nullptr};
  Tensors results;
  for (int i = 0; i < 50; ++i) Check(bare.step(feeds, &results));
  if (flags.estimator) {
    TrainByEstimator(flags, options, directory, feeds, bare, watched);
  } else {
    auto session = Check(MonitoredTrainingSession(
        watched_model.scope,
        {.master = options.target,
         .checkpoint_dir = directory,
         .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = int64_t{1} << 40}),
                   std::make_shared<NanTensorHook>(watched_model.loss)},
         .save_checkpoint_every = absl::Seconds(flags.save_checkpoint_secs),
         .save_summaries_every_steps = flags.save_summaries_every_steps,
         .loss = watched_model.loss,
         .session = options}));
    const MonitoredStep watched_step =
        Check(session->MakeStep({watched_model.x, watched_model.labels},
                                {watched_model.loss, watched_model.global_step}, {watched_model.train}));

    watched.step = [&](const auto& f, Tensors* results) { return watched_step.Run(f, results); };
    for (int i = 0; i < 50; ++i) Check(watched.step(feeds, &results));
    for (int turn = 0; turn < flags.turns; ++turn) {
      bare.Turn(flags.seconds, feeds);
      watched.Turn(flags.seconds, feeds);
    }
    Check(session->Close());
  }
  std::filesystem::remove_all(directory);
  bare.Print();
  watched.Print();
  std::printf("supervision costs %.2f %% of steps/s (median turn %.2f %%), %.2f %% of CPU time\n",
              100 * (1 - watched.rate() / bare.rate()), 100 * (1 - watched.median() / bare.median()),
              100 * (watched.cpu_us() / bare.cpu_us() - 1));
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  millrace::bench::SupervisionFlags flags;
  CLI::App app(
      "Steps/s of a perceptron (784-100-10, 100 rows) in a bare session and in a MonitoredTrainingSession, in turns.");
  app.add_option("--turns", flags.turns, "Turns of each side")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "Seconds of one turn")->capture_default_str();
  app.add_option("--save_summaries_every_steps", flags.save_summaries_every_steps)->capture_default_str();
  app.add_option("--save_checkpoint_secs", flags.save_checkpoint_secs)->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads of each session or server")->capture_default_str();
  app.add_option("--directory", flags.directory, "Where a temporary directory for checkpoints and events is created");
  app.add_flag("--cluster", flags.cluster,
               "Use a parameter server and a worker in this process instead of a local session");
  app.add_flag("--estimator", flags.estimator, "Let an Estimator train, in this process, instead of a session");
  CLI11_PARSE(app, argc, argv);
  if (flags.estimator && flags.cluster) {
    std::fprintf(stderr, "supervision_bench: --estimator runs without --cluster\n");
    return 2;
  }
  millrace::bench::Run(flags);
  return 0;
}
