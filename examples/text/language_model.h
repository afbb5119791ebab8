// What the programs that learn a text have in common: flags, training alone or as a task of a cluster, the perplexity
// on the test part, and a sample of text. A program adds its model.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <random>

#include "absl/random/distributions.h"
#include "examples/parse_flags.h"
#include "examples/text/corpus.h"

struct TextFlags {
  std::string text = "examples/data/text/alice29.txt";
  std::string log_dir;
  int64_t train_steps = 1000;
  int64_t batch_size = 32;
  int64_t time_steps = 64;
  double learning_rate = 0.002;
  int64_t save_checkpoint_steps = 500;
  int64_t sample = 300;
  double temperature = 0.7;
  int64_t seed = 1;
  double max_perplexity = 0;

  void AddTo(CLI::App& app) {
    app.option_defaults()->always_capture_default();
    app.add_option("--text", text, "The text to learn, in a character set of one byte");
    app.add_option("--log_dir", log_dir,
                   "Directory for checkpoints and TensorBoard's files; a training found there is continued");
    app.add_option("--train_steps,--steps", train_steps, "Global steps, of all workers together")
        ->check(CLI::PositiveNumber);
    app.add_option("--batch_size", batch_size, "Pieces of text in a step of a worker")->check(CLI::PositiveNumber);
    app.add_option("--time_steps", time_steps, "Characters of a piece")->check(CLI::PositiveNumber);
    app.add_option("--learning_rate", learning_rate, "Of Adam")->check(CLI::PositiveNumber);
    app.add_option("--save_checkpoint_steps", save_checkpoint_steps, "Steps between checkpoints")
        ->check(CLI::PositiveNumber);
    app.add_option("--sample", sample, "Characters of text to write at the end")->check(CLI::NonNegativeNumber);
    app.add_option("--temperature", temperature, "Below 1 the sample is more predictable, above 1 less")
        ->check(CLI::PositiveNumber);
    app.add_option("--seed", seed, "Random seed of the weights, the pieces of text and the sample");
    app.add_option("--max_perplexity", max_perplexity, "Fail if the perplexity on the test part is above this");
    app.footer(
        "Alone: the program itself. On a cluster:\n"
        "  millrace launch --ps 1 --workers 2 -- PROGRAM --log_dir=/tmp/text");
  }
};

// Characters [batch, time] in; logits [batch, time, characters] out. `training` is a bool scalar.
using TextModel = std::function<millrace::Output(const millrace::Scope& scope, const millrace::Output& characters,
                                                 const millrace::Output& training, int64_t num_characters)>;

class LanguageModel {
 public:
  LanguageModel(TextFlags flags, TextModel model) : flags_(std::move(flags)), model_(std::move(model)) {}

  millrace::Status Run() {
    using namespace millrace;
    // TF_CONFIG, which `millrace launch` sets, tells which task this process is.
    MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> told, TaskConfig::FromEnvironment());
    const TaskConfig config = told.value_or(TaskConfig{});
    std::unique_ptr<Server> server;
    Scope scope = Scope::NewRoot();
    if (!config.cluster.jobs().empty()) {
      MR_ASSIGN_OR_RETURN(server, Server::Start(config.cluster, config.task.job, config.task.index));
      if (config.is_ps()) {
        server->Join();
        return absl::OkStatus();
      }
      scope = scope.WithDeviceFunction(
          ReplicaDeviceSetter({.ps_tasks = config.num_ps(), .worker_device = config.task.name()}));
    }
    MR_ASSIGN_OR_RETURN(corpus_, Corpus::Load(flags_.text));
    if (static_cast<int64_t>(corpus_.test.size()) <= flags_.time_steps) {
      return InvalidArgument("--time_steps=", flags_.time_steps, " is too much for a test part of ",
                             corpus_.test.size(), " characters");
    }
    scope.SetRandomSeed(flags_.seed);
    Build(scope);
    return Train(scope, config, server == nullptr ? "" : server->target());
  }

 private:
  void Build(const millrace::Scope& scope) {
    using namespace millrace;
    inputs_ = ops::Placeholder(scope.WithOpName("inputs"), DType::kInt32, {.shape = {-1, -1}});
    targets_ = ops::Placeholder(scope.WithOpName("targets"), DType::kInt32, {.shape = {-1, -1}});
    training_ = ops::PlaceholderWithDefault(scope.WithOpName("training"), false, PartialShape::Scalar());
    logits_ = model_(scope, inputs_, training_, corpus_.size());
    loss_ = losses::SequenceLoss(scope.WithOpName("loss"), logits_, targets_);
    global_step_ = GlobalStep(scope);
    // Gradients of recurrent networks may explode.
    optimizers::Adam adam({.learning_rate = flags_.learning_rate});
    std::vector<GradAndVar> pairs = adam.ComputeGradients(scope, loss_);
    std::vector<Gradient> gradients;
    for (const GradAndVar& pair : pairs) gradients.push_back(pair.gradient);
    gradients = ClipByGlobalNorm(scope, gradients, 1.0).first;
    for (size_t i = 0; i < pairs.size() && i < gradients.size(); ++i) pairs[i].gradient = gradients[i];
    train_ = adam.ApplyGradients(scope, pairs, {.global_step = GlobalStep(scope)});
    if (scope.ok()) ScalarSummary(scope, "loss", loss_);
  }

  millrace::Status Train(const millrace::Scope& scope, const millrace::TaskConfig& config, const std::string& target) {
    using namespace millrace;
    MR_RETURN_IF_ERROR(scope.status());
    MR_ASSIGN_OR_RETURN(
        const std::unique_ptr<MonitoredSession> session,
        MonitoredTrainingSession(
            scope, {.master = target,
                    .is_chief = config.is_chief(),
                    .checkpoint_dir = flags_.log_dir,
                    .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = flags_.train_steps})},
                    .save_checkpoint_every_steps = flags_.save_checkpoint_steps,
                    .loss = loss_}));
    MR_ASSIGN_OR_RETURN(MonitoredStep step,
                        session->MakeStep({inputs_, targets_, training_}, {loss_, global_step_}, {train_}));
    std::mt19937_64 random(static_cast<uint64_t>(flags_.seed * 1000 + config.worker_index()));
    const int64_t last = static_cast<int64_t>(corpus_.train.size()) - flags_.time_steps - 1;
    std::vector<int64_t> begins(static_cast<size_t>(flags_.batch_size));
    for (int64_t local = 1; !session->ShouldStop(); ++local) {
      for (int64_t& begin : begins) begin = absl::Uniform<int64_t>(absl::IntervalClosed, random, 0, last);
      std::vector<Tensor> batch = Corpus::Windows(corpus_.train, begins, flags_.time_steps);
      batch.push_back(Tensor::Scalar(true));
      MR_ASSIGN_OR_RETURN(const Tensors result, step(batch));
      if (local % 100 == 0) {
        std::printf("Worker %d: global step %lld, perplexity %.2f\n", config.worker_index(),
                    static_cast<long long>(result[1].scalar<int64_t>()), std::exp(result[0].scalar<float>()));
        std::fflush(stdout);
      }
    }
    MR_ASSIGN_OR_RETURN(const double perplexity, Test(*session->raw_session()));
    std::printf("Perplexity %.2f on %zu characters that were not trained on\n", perplexity, corpus_.test.size());
    if (config.is_chief()) MR_RETURN_IF_ERROR(WriteSample(*session->raw_session()));
    std::fflush(stdout);
    MR_RETURN_IF_ERROR(session->Close());
    if (flags_.max_perplexity > 0 && !(perplexity <= flags_.max_perplexity)) {
      return FailedPrecondition("the perplexity ", perplexity, " is above --max_perplexity=", flags_.max_perplexity);
    }
    return absl::OkStatus();
  }

  // e to the mean loss over the test part: among how many characters the model hesitates.
  millrace::StatusOr<double> Test(millrace::ClientSession& session) const {
    using namespace millrace;
    double sum = 0;
    int64_t count = 0;
    std::vector<int64_t> begins;
    const int64_t size = static_cast<int64_t>(corpus_.test.size()), time = flags_.time_steps;
    for (int64_t begin = 0; begin + time < size; begin += time) {
      begins.push_back(begin);
      if (static_cast<int64_t>(begins.size()) < flags_.batch_size && begin + 2 * time < size) continue;
      const std::vector<Tensor> batch = Corpus::Windows(corpus_.test, begins, time);
      MR_ASSIGN_OR_RETURN(const Tensors result, session.Run({{inputs_, batch[0]}, {targets_, batch[1]}}, {loss_}));
      sum += result[0].scalar<float>() * static_cast<double>(begins.size());
      count += static_cast<int64_t>(begins.size());
      begins.clear();
    }
    return std::exp(sum / static_cast<double>(count));
  }

  // Continues a piece from the middle of the test part by drawing one character after the other.
  millrace::Status WriteSample(millrace::ClientSession& session) const {
    using namespace millrace;
    std::mt19937_64 random(static_cast<uint64_t>(flags_.seed));
    const size_t context = static_cast<size_t>(flags_.time_steps);
    const auto begin = corpus_.test.begin() + static_cast<std::ptrdiff_t>((corpus_.test.size() - context) / 2);
    std::vector<int32_t> text(begin, begin + static_cast<std::ptrdiff_t>(context));
    MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({inputs_}, {logits_}, {}));
    std::string written;
    for (int64_t i = 0; i < flags_.sample; ++i) {
      Tensor recent(DType::kInt32, Shape({1, static_cast<int64_t>(context)}));
      std::copy(text.end() - static_cast<std::ptrdiff_t>(context), text.end(), recent.data<int32_t>());
      MR_ASSIGN_OR_RETURN(const Tensors result, step({recent}));
      const float* const scores = result[0].data<float>() + (static_cast<int64_t>(context) - 1) * corpus_.size();
      const float most = *std::max_element(scores, scores + corpus_.size());
      std::vector<double> weights;
      for (int64_t c = 0; c < corpus_.size(); ++c) weights.push_back(std::exp((scores[c] - most) / flags_.temperature));
      const int next = std::discrete_distribution<int>(weights.begin(), weights.end())(random);
      text.push_back(next);
      written += corpus_.characters[static_cast<size_t>(next)];
    }
    if (flags_.sample > 0) std::printf("Sample:\n%s\n", written.c_str());
    return absl::OkStatus();
  }

  const TextFlags flags_;
  const TextModel model_;
  Corpus corpus_;
  millrace::Output inputs_, targets_, training_, logits_, loss_, global_step_;
  millrace::Operation train_;
};

// Parses the command line, to which `app` may have added flags of the model, and trains.
inline int TextMain(CLI::App& app, TextFlags& flags, int argc, char** argv, const TextModel& model) {
  flags.AddTo(app);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (const millrace::Status status = LanguageModel(flags, model).Run(); !status.ok()) {
    std::cerr << app.get_name() << ": " << status.message() << "\n";
    return 1;
  }
  return 0;
}
