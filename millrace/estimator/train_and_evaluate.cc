#include "millrace/estimator/train_and_evaluate.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"

namespace millrace {
namespace {

// An evaluation and what follows it. True if the training is to end.
class Evaluations {
 public:
  Evaluations(Estimator& estimator, const EvalSpec& spec, Clock* clock)
      : estimator_(estimator), spec_(spec), clock_(clock) {}

  // How long the throttle still delays the next one.
  absl::Duration Delay() const { return begun_ + spec_.throttle - clock_->Now(); }

  StatusOr<bool> Run(const std::string& checkpoint, bool is_last) {
    begun_ = clock_->Now();
    MR_ASSIGN_OR_RETURN(
        results_, estimator_.Evaluate(
                      spec_.input,
                      {.steps = spec_.steps, .hooks = spec_.hooks, .checkpoint_path = checkpoint, .name = spec_.name}));
    return Tell(is_last);
  }
  // Says that the last results were those of the last checkpoint, unless that was said.
  Status Finish() { return said_last_ ? absl::OkStatus() : Tell(/*is_last=*/true).status(); }

  const EvalResults& results() const { return results_; }

 private:
  StatusOr<bool> Tell(bool is_last) {
    said_last_ = is_last;
    bool stop = false;
    const Strategy* const strategy = estimator_.config().options().eval_distribute.get();
    if (strategy == nullptr || strategy->is_chief()) {
      for (const auto& exporter : spec_.exporters) {
        const std::string path = JoinPath(JoinPath(estimator_.model_dir(), "export"), exporter->name());
        MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("exporter ", exporter->name(), ": "),
                                      exporter->Export(estimator_, path, results_, is_last).status()));
      }
    }
    for (const AfterEvaluation& after : spec_.after) {
      MR_ASSIGN_OR_RETURN(const bool wants_stop, after(estimator_, results_, is_last));
      stop = stop || wants_stop;
    }
    return stop;
  }

  Estimator& estimator_;
  const EvalSpec& spec_;
  Clock* const clock_;
  absl::Time begun_ = absl::InfinitePast();
  EvalResults results_;
  bool said_last_ = false;
};

// Evaluates what a training in this process saves.
class EvaluateAfterSave : public CheckpointSaverListener {
 public:
  EvaluateAfterSave(Evaluations& evaluations, std::optional<int64_t> max_steps)
      : evaluations_(evaluations), max_steps_(max_steps) {}

  // The checkpoint that a training begins with has nothing new.
  Status BeforeSave(ClientSession*, int64_t step) override {
    if (!first_) first_ = step;
    return absl::OkStatus();
  }
  StatusOr<bool> AfterSave(ClientSession*, int64_t step, const std::string& prefix) override {
    // The last one is evaluated when the training has ended.
    if (step == first_ || (max_steps_ && step >= *max_steps_) || evaluations_.Delay() > absl::ZeroDuration())
      return false;
    return evaluations_.Run(prefix, /*is_last=*/false);
  }

 private:
  Evaluations& evaluations_;
  const std::optional<int64_t> max_steps_;
  std::optional<int64_t> first_;
};

StatusOr<EvalResults> RunLocally(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                                 const TrainAndEvaluateOptions& options) {
  Evaluations evaluations(estimator, eval, options.wait.clock);
  TrainOptions train_options{
      .max_steps = train.max_steps, .hooks = train.hooks, .saving_listeners = train.saving_listeners};
  train_options.saving_listeners.push_back(std::make_shared<EvaluateAfterSave>(evaluations, train.max_steps));
  MR_RETURN_IF_ERROR(estimator.Train(train.input, std::move(train_options)));
  MR_ASSIGN_OR_RETURN(const std::string newest, estimator.LatestCheckpoint());
  if (evaluations.results().checkpoint != newest || newest.empty()) {
    MR_RETURN_IF_ERROR(evaluations.Run(newest, /*is_last=*/true).status());
  }
  MR_RETURN_IF_ERROR(evaluations.Finish());
  return evaluations.results();
}

StatusOr<EvalResults> RunTask(Estimator& estimator, const TrainSpec& train, const TrainAndEvaluateOptions& options) {
  const RunConfig& config = estimator.config();
  std::unique_ptr<Server> server;
  const bool starts_server = config.environment() != "google" && config.options().train_distribute == nullptr &&
                             config.task().session_master.empty();
  if (starts_server) {
    MR_ASSIGN_OR_RETURN(server,
                        Server::Start(config.cluster_spec(), config.task_type(), config.task_id(), options.server));
  }
  if (config.task_type() == task_type::kPs) {
    if (server == nullptr) return InvalidArgument("the server of ", config.task().task.name(), " is started by others");
    server->Join();
    return EvalResults();
  }
  MR_RETURN_IF_ERROR(estimator.Train(
      train.input, {.max_steps = train.max_steps, .hooks = train.hooks, .saving_listeners = train.saving_listeners}));
  return EvalResults();
}

Status CheckExporters(const EvalSpec& eval) {
  std::set<std::string> names;
  for (const auto& exporter : eval.exporters) {
    if (exporter == nullptr) return InvalidArgument("EvalSpec: an exporter is null");
    const std::string& name = exporter->name();
    if (name.empty() || name == "." || name == ".." || absl::StrContains(name, '/'))
      return InvalidArgument("EvalSpec: the exporter's name '", name, "' is not that of a folder");
    if (!names.insert(name).second) return InvalidArgument("EvalSpec: two exporters are called ", name);
  }
  return absl::OkStatus();
}

// A checkpoint may be deleted, because there are newer ones, while it is being read.
bool IsOutdated(Estimator& estimator, const std::string& checkpoint) {
  const StatusOr<std::string> newest = estimator.LatestCheckpoint();
  return newest.ok() && *newest != checkpoint;
}

StatusOr<EvalResults> RunEvaluator(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                                   const TrainAndEvaluateOptions& options) {
  Evaluations evaluations(estimator, eval, options.wait.clock);
  const std::string& model_dir = estimator.model_dir();
  const absl::Time started = options.wait.clock->Now();
  std::string evaluated;
  auto wait = std::make_unique<NamedWait>("the evaluator", options.wait, options.max_wait, nullptr);
  while (true) {
    const absl::Duration to_start = started + eval.start_delay - options.wait.clock->Now();
    if (to_start > absl::ZeroDuration()) {
      MR_RETURN_IF_ERROR(wait->Again(absl::StrCat("the start delay of ", absl::FormatDuration(eval.start_delay))));
      continue;
    }
    MR_ASSIGN_OR_RETURN(const std::string newest, estimator.LatestCheckpoint());
    // By its name: other workers may have gone on while it was written.
    const bool is_last = train.max_steps && StepOfCheckpoint(newest).value_or(0) >= *train.max_steps;
    if (newest.empty() || newest == evaluated) {
      MR_RETURN_IF_ERROR(wait->Again(absl::StrCat("a new checkpoint in ", model_dir)));
      continue;
    }
    if (!is_last && evaluations.Delay() > absl::ZeroDuration()) {
      MR_RETURN_IF_ERROR(wait->Again(absl::StrCat("the throttle of ", absl::FormatDuration(eval.throttle))));
      continue;
    }
    const StatusOr<bool> stop = evaluations.Run(newest, is_last);
    if (!stop.ok()) {
      if (!IsOutdated(estimator, newest)) return stop.status();
      MR_LOG(Warning, newest, " could not be evaluated, and is no longer the newest: ", stop.status().message());
      continue;
    }
    evaluated = newest;
    if (is_last || *stop) return evaluations.results();
    wait = std::make_unique<NamedWait>("the evaluator", options.wait, options.max_wait, nullptr);
  }
}

}  // namespace

StatusOr<EvalResults> TrainAndEvaluate(Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                                       const TrainAndEvaluateOptions& options) {
  const RunConfig& config = estimator.config();
  if (train.input == nullptr) return InvalidArgument("TrainSpec has no input function");
  if (eval.input == nullptr) return InvalidArgument("EvalSpec has no input function");
  if (train.max_steps.value_or(1) < 1) return InvalidArgument("TrainSpec: max_steps is ", *train.max_steps);
  if (eval.steps.value_or(1) < 1) return InvalidArgument("EvalSpec: steps is ", *eval.steps);
  if (eval.throttle < absl::ZeroDuration() || eval.start_delay < absl::ZeroDuration()) {
    return InvalidArgument("EvalSpec: start_delay is ", absl::FormatDuration(eval.start_delay), " and throttle ",
                           absl::FormatDuration(eval.throttle), "; a delay cannot be negative");
  }
  MR_RETURN_IF_ERROR(CheckExporters(eval));
  if (config.is_evaluator()) return RunEvaluator(estimator, train, eval, options);
  if (config.has_cluster()) return RunTask(estimator, train, options);
  return RunLocally(estimator, train, eval, options);
}

}  // namespace millrace
