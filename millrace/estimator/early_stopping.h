// Ends a training when its evaluations do not get better.
//
//   TrainSpec train{.input = input, .max_steps = 100000,
//                   .hooks = {StopIfNoDecreaseHook(estimator, "loss", 5000)}};
//   TrainAndEvaluate(estimator, train, eval);
//
// The results are read from the event files that evaluations write to model_dir/eval, whichever process evaluates.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/estimator/estimator.h"

namespace millrace {

// The numbers that evaluations have written to a directory, by step and name. Empty if there is no such directory. The
// end of a file that is being written is left out.
StatusOr<std::map<int64_t, std::map<std::string, double>>> ReadEvalMetrics(const std::string& eval_dir);

struct EarlyStoppingOptions {
  // Where the evaluations are; by default those of the Estimator that have no name.
  std::string eval_dir = {};
  // No training ends before this step.
  int64_t min_steps = 0;
  // How often the chief looks: give one of the two. Zero time means after each step.
  std::optional<absl::Duration> run_every_secs = std::nullopt;  // default: 60 s
  std::optional<int64_t> run_every_steps = std::nullopt;
  Clock* clock = Clock::Real();
};

// Asks `should_stop` on the chief, and ends the training on all workers when it returns true. All tasks must have the
// hook, in TrainOptions::hooks or TrainSpec::hooks. Workers learn it from a parameter server. Those of a synchronous
// strategy agree on it: they need run_every_steps, which then counts their steps; Begin fails with INVALID_ARGUMENT
// otherwise. Nothing of it is saved.
//
// An evaluator that waits for max_steps does not learn of it: stop it with the job (`millrace launch --service_job`).
std::shared_ptr<SessionRunHook> EarlyStoppingHook(const Estimator& estimator,
                                                  std::function<StatusOr<bool>()> should_stop,
                                                  const EarlyStoppingOptions& options = {});

// Ends it when no evaluation has been lower (higher) than the best before for that many steps.
std::shared_ptr<SessionRunHook> StopIfNoDecreaseHook(const Estimator& estimator, const std::string& metric,
                                                     int64_t max_steps_without_decrease,
                                                     const EarlyStoppingOptions& options = {});
std::shared_ptr<SessionRunHook> StopIfNoIncreaseHook(const Estimator& estimator, const std::string& metric,
                                                     int64_t max_steps_without_increase,
                                                     const EarlyStoppingOptions& options = {});
// Ends it when an evaluation is higher (lower) than the threshold.
std::shared_ptr<SessionRunHook> StopIfHigherHook(const Estimator& estimator, const std::string& metric,
                                                 double threshold, const EarlyStoppingOptions& options = {});
std::shared_ptr<SessionRunHook> StopIfLowerHook(const Estimator& estimator, const std::string& metric, double threshold,
                                                const EarlyStoppingOptions& options = {});

}  // namespace millrace
