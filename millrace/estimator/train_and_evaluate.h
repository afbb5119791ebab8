// Training and evaluation of an Estimator: in one process, or as the task of a cluster that TF_CONFIG says this process
// is.
//
//   return TrainAndEvaluate(estimator, {.input = train_input, .max_steps = 10000}, {.input = test_input});
//
// The same program is every task:
//
//   millrace launch --ps 1 --workers 2 --side_job evaluator=1 -- program
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/cluster/server.h"
#include "millrace/estimator/estimator.h"
#include "millrace/estimator/exporter.h"
#include "millrace/train/named_wait.h"

namespace millrace {

// TensorFlow's options and defaults.
struct TrainSpec {
  InputFn input = nullptr;
  // The global step at which the training ends; without it, at the end of the input. An evaluator needs it to know
  // when it has evaluated the last checkpoint.
  std::optional<int64_t> max_steps = std::nullopt;
  Hooks hooks = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> saving_listeners = {};
};

// Called after each evaluation, with its results. `is_last` for that of the last checkpoint.
// Returning true ends a training in this process.
using AfterEvaluation = std::function<StatusOr<bool>(Estimator& estimator, const EvalResults& results, bool is_last)>;

struct EvalSpec {
  InputFn input = nullptr;
  // Batches of an evaluation; the whole input if nullopt.
  std::optional<int64_t> steps = 100;
  std::string name = {};
  Hooks hooks = {};
  // Called after each evaluation, before `after`.
  std::vector<std::shared_ptr<Exporter>> exporters = {};
  std::vector<AfterEvaluation> after = {};
  // How long an evaluator waits before its first evaluation.
  absl::Duration start_delay = absl::Seconds(120);
  // From the beginning of an evaluation to that of the next at least; the last checkpoint is always evaluated.
  absl::Duration throttle = absl::Seconds(600);
};

struct TrainAndEvaluateOptions {
  ServerOptions server = {};
  // How an evaluator waits for checkpoints, and the clock of the throttle.
  WaitSettings wait = {};
  // How long an evaluator waits for a new checkpoint.
  absl::Duration max_wait = absl::InfiniteDuration();
};

// What it does depends on the task of the Estimator's RunConfig:
//
//   without a cluster   trains; evaluates in between, when a checkpoint has been saved, and at the end
//   chief, worker       starts the task's server and trains
//   ps                  starts the task's server and serves until the process ends
//   evaluator           evaluates each new checkpoint, or the newest if there were several, until one has max_steps
//
// With a strategy in the RunConfig, which has a server of its own, tasks that train do so by it. In the environment
// "google" the servers run already.
//
// Returns the last evaluation's results, which are empty on tasks that do not evaluate.
StatusOr<EvalResults> TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                                       const TrainAndEvaluateOptions& options = {});

}  // namespace millrace
