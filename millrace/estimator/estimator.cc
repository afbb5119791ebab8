#include "millrace/estimator/estimator.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/estimator/export_model.h"
#include "millrace/estimator/model_graph.h"
#include "millrace/train/checkpoint/checkpoint_reader.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/global_step.h"
#include "millrace/train/hooks/hooks.h"
#include "millrace/train/monitored_training_session.h"

namespace millrace {
namespace {

using estimator_internal::BuildModel;
using estimator_internal::CheckpointSessionCreator;
using estimator_internal::ModelGraph;
using estimator_internal::ModelGraphOptions;

// A scalar as a number; nothing if it is none.
std::optional<double> NumberOf(const Tensor& tensor) {
  if (tensor.num_elements() != 1) return std::nullopt;
  switch (tensor.dtype()) {
    case DType::kFloat:
      return tensor.data<float>()[0];
    case DType::kDouble:
      return tensor.data<double>()[0];
    case DType::kInt32:
      return tensor.data<int32_t>()[0];
    case DType::kInt64:
      return static_cast<double>(tensor.data<int64_t>()[0]);
    default:
      return std::nullopt;
  }
}

Hooks TrainingHooks(const ModelGraph& graph, const RunConfig& config, const TrainOptions& options) {
  Hooks hooks = {std::make_shared<NanTensorHook>(graph.loss)};
  if (options.steps || options.max_steps) {
    hooks.push_back(std::make_shared<StopAtStepHook>(
        StopAtStepOptions{.num_steps = options.steps, .last_step = options.max_steps}));
  }
  if (const int64_t every = config.options().log_step_count_steps; every > 0) {
    hooks.push_back(std::make_shared<LoggingTensorHook>(LoggingTensorOptions{
        .tensors = {{"loss", graph.loss}, {"step", *FindGlobalStep(graph.scope)}}, .every_runs = every}));
  }
  hooks.insert(hooks.end(), graph.spec.training_hooks.begin(), graph.spec.training_hooks.end());
  hooks.insert(hooks.end(), options.hooks.begin(), options.hooks.end());
  return hooks;
}

// Steps until the input or the training ends.
Status RunSteps(ModelGraph& graph, MonitoredSession& session) {
  MR_ASSIGN_OR_RETURN(const MonitoredStep step, session.MakeStep(graph.feeds, {}, {graph.train}));
  std::vector<Tensor> batch;
  Tensors nothing;
  while (!session.ShouldStop()) {
    MR_ASSIGN_OR_RETURN(const bool more, graph.input->Next(&batch));
    if (!more) break;
    const Status status = step.Run(batch, &nothing);
    if (absl::IsOutOfRange(status) && graph.feeds.empty()) break;
    MR_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

// The session of an evaluation or a prediction.
StatusOr<std::unique_ptr<MonitoredSession>> ReadingSession(const ModelGraph& graph, const RunConfig& config,
                                                           Strategy* strategy, Hooks hooks,
                                                           const std::string& checkpoint) {
  SessionOptions options = config.session_config();
  options.device_filters.clear();
  options.target = config.evaluation_target();
  if (strategy != nullptr) {
    MR_ASSIGN_OR_RETURN(options, strategy->MakeSessionOptions(options));
  }
  return MonitoredSession::Create(graph.scope,
                                  CheckpointSessionCreator(std::move(options), graph.spec.scaffold, checkpoint),
                                  {.hooks = std::move(hooks), .recover = false});
}

Hooks Joined(Hooks first, const Hooks& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class GraphPredictions : public Predictions {
 public:
  GraphPredictions(ModelGraph graph, std::unique_ptr<MonitoredSession> session, std::vector<std::string> names,
                   MonitoredStep step, bool single)
      : graph_(std::move(graph)),
        session_(std::move(session)),
        names_(std::move(names)),
        step_(step),
        single_(single) {}

  StatusOr<bool> Next(std::map<std::string, Tensor>* prediction) override {
    if (row_ == rows_) {
      MR_ASSIGN_OR_RETURN(const bool more, RunBatch());
      if (!more) return false;
    }
    prediction->clear();
    for (size_t i = 0; i < names_.size(); ++i) {
      (*prediction)[names_[i]] = single_ ? results_[i].Row(row_) : results_[i];
    }
    row_ = single_ ? row_ + 1 : rows_;
    return true;
  }

 private:
  StatusOr<bool> RunBatch() {
    do {
      if (session_ == nullptr || session_->ShouldStop()) return End();
      std::vector<Tensor> batch;
      MR_ASSIGN_OR_RETURN(const bool more, graph_.input->Next(&batch));
      if (!more) return End();
      const Status status = step_.Run(batch, &results_);
      if (absl::IsOutOfRange(status) && graph_.feeds.empty()) return End();
      MR_RETURN_IF_ERROR(status);
      row_ = 0;
      rows_ = 1;
      if (!single_) return true;
      for (size_t i = 0; i < results_.size(); ++i) {
        const Tensor& result = results_[i];
        if (result.rank() == 0 || (i > 0 && result.dim(0) != rows_)) {
          return InvalidArgument("the prediction ", names_[i], " has shape ", result.shape().ToString(),
                                 ", which does not have one row for each example: ask for whole batches "
                                 "(yield_single_examples = false)");
        }
        rows_ = result.dim(0);
      }
    } while (rows_ == 0);
    return true;
  }
  StatusOr<bool> End() {
    rows_ = row_ = 0;
    if (session_ != nullptr) MR_RETURN_IF_ERROR(session_->Close());
    session_.reset();
    return false;
  }

  ModelGraph graph_;
  std::unique_ptr<MonitoredSession> session_;
  const std::vector<std::string> names_;
  const MonitoredStep step_;
  const bool single_;
  Tensors results_;
  int64_t row_ = 0;
  int64_t rows_ = 0;
};

class NoPredictions : public Predictions {
 public:
  StatusOr<bool> Next(std::map<std::string, Tensor>*) override { return false; }
};

// Writes what TensorBoard shows of an evaluation.
Status WriteResults(const std::string& directory, const EvalResults& results) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, FileWriter::Create(directory));
  for (const auto& [name, value] : results.values) {
    const std::optional<double> number = NumberOf(value);
    if (number) MR_RETURN_IF_ERROR(writer->AddScalar(name, *number, results.global_step));
  }
  return writer->Close();
}

}  // namespace

double EvalResults::number(const std::string& name) const {
  const auto found = values.find(name);
  const std::optional<double> number = found == values.end() ? std::nullopt : NumberOf(found->second);
  return number.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string EvalResults::ToString() const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) {
    const std::optional<double> number = NumberOf(value);
    parts.push_back(absl::StrCat(name, " = ", number ? absl::StrCat(*number) : value.DebugString()));
  }
  parts.push_back(absl::StrCat("global_step = ", global_step));
  return absl::StrJoin(parts, ", ");
}

StatusOr<Estimator> Estimator::Create(ModelFn model, RunConfig config, EstimatorOptions options) {
  if (model == nullptr) return InvalidArgument("the Estimator has no model function");
  if (config.model_dir().empty())
    return InvalidArgument(
        "the Estimator has no model_dir, where its checkpoints are: set RunConfigOptions::model_dir");
  return Estimator(std::move(model), std::move(config), std::move(options));
}

StatusOr<std::string> Estimator::LatestCheckpoint() const { return ::millrace::LatestCheckpoint(model_dir()); }

StatusOr<std::string> Estimator::CheckpointFor(const std::string& wanted, const char* what) const {
  if (!wanted.empty()) return FindCheckpoint(wanted);
  MR_ASSIGN_OR_RETURN(const std::string newest, LatestCheckpoint());
  if (newest.empty()) return NotFound("there is no checkpoint for the ", what, " in ", model_dir(), ": train first");
  return newest;
}

StatusOr<std::vector<std::string>> Estimator::GetVariableNames() const {
  MR_ASSIGN_OR_RETURN(const std::vector<CheckpointVariable> variables, ListVariables(model_dir()));
  std::vector<std::string> names;
  for (const CheckpointVariable& variable : variables) names.push_back(variable.name);
  return names;
}

StatusOr<Tensor> Estimator::GetVariableValue(const std::string& name) const { return LoadVariable(model_dir(), name); }

std::string Estimator::EvalDir(const std::string& name) const {
  return JoinPath(model_dir(), name.empty() ? "eval" : absl::StrCat("eval_", name));
}

Status Estimator::Train(const InputFn& input, TrainOptions options) {
  if (options.steps && options.max_steps) return InvalidArgument("give one of steps and max_steps, not both");
  if (options.steps.value_or(1) < 1) return InvalidArgument("steps is ", *options.steps);
  if (options.max_steps.value_or(1) < 1) return InvalidArgument("max_steps is ", *options.max_steps);
  Strategy* const strategy = config_.options().train_distribute.get();
  if (strategy == nullptr && config_.num_ps_replicas() == 0 && config_.num_worker_replicas() > 1) {
    return InvalidArgument("the cluster has ", config_.num_worker_replicas(),
                           " workers and no ps to share variables by: add one, or give the RunConfig a strategy");
  }
  MR_ASSIGN_OR_RETURN(std::string newest, LatestCheckpoint());
  // The chief's may be newer, while it saves.
  if (strategy != nullptr) {
    MR_ASSIGN_OR_RETURN(newest, strategy->TextOfChief(newest));
  }
  const int64_t begun = StepOfCheckpoint(newest).value_or(0);
  if (options.max_steps && begun >= *options.max_steps) {
    MR_LOG(Info, "not training: ", newest, " has reached step ", *options.max_steps);
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(ModelGraph graph, BuildModel({.mode = ModelMode::kTrain,
                                                    .model = model_,
                                                    .params = options_.params,
                                                    .config = config_,
                                                    .strategy = strategy,
                                                    .global_step = begun},
                                                   input));
  if (!options_.warm_start_from.empty() && newest.empty()) {
    MR_RETURN_IF_ERROR(WarmStart(graph.scope, options_.warm_start_from, options_.warm_start));
  }
  const RunConfigOptions& config = config_.options();
  std::shared_ptr<Scaffold> scaffold = graph.spec.scaffold;
  if (scaffold == nullptr) scaffold = std::make_shared<Scaffold>();
  const bool is_chief = strategy != nullptr ? strategy->is_chief() : config_.is_chief();
  // The saver is made when the hooks have added their variables.
  scaffold->saver_options.max_to_keep = config.keep_checkpoint_max;
  scaffold->saver_options.keep_checkpoint_every = config.keep_checkpoint_every;
  scaffold->saver_options.sharded = config_.num_ps_replicas() > 0;
  MonitoredTrainingSessionOptions session_options{.is_chief = is_chief,
                                                  .checkpoint_dir = model_dir(),
                                                  .scaffold = std::move(scaffold),
                                                  .hooks = TrainingHooks(graph, config_, options),
                                                  .chief_only_hooks = graph.spec.training_chief_hooks,
                                                  .save_checkpoint_every = config.save_checkpoints_secs,
                                                  .save_checkpoint_every_steps = config.save_checkpoints_steps,
                                                  .saving_listeners = options.saving_listeners,
                                                  .save_in_background = options.saving_listeners.empty(),
                                                  .save_summaries_every_steps = config.save_summary_steps,
                                                  .log_step_count_every_steps = config.log_step_count_steps,
                                                  .loss = graph.loss,
                                                  .max_wait = config.session_creation_timeout,
                                                  .session = config_.session_config()};
  std::unique_ptr<MonitoredSession> session;
  if (strategy != nullptr) {
    session_options.session.device_filters.clear();
    MR_ASSIGN_OR_RETURN(session, strategy->TrainingSession(graph.scope, std::move(session_options)));
  } else {
    session_options.master = config_.target();
    MR_ASSIGN_OR_RETURN(session, MonitoredTrainingSession(graph.scope, std::move(session_options)));
  }
  MR_RETURN_IF_ERROR(RunSteps(graph, *session));
  return session->Close();
}

StatusOr<EvalResults> Estimator::Evaluate(const InputFn& input, EvaluateOptions options) {
  if (options.steps.value_or(1) < 1) return InvalidArgument("steps is ", *options.steps);
  EvalResults results;
  Strategy* const strategy = config_.options().eval_distribute.get();
  StatusOr<std::string> checkpoint = std::string();
  if (strategy == nullptr || strategy->is_chief()) checkpoint = CheckpointFor(options.checkpoint_path, "evaluation");
  if (strategy != nullptr) {
    MR_ASSIGN_OR_RETURN(results.checkpoint, strategy->TextOfChief(checkpoint.value_or("")));
    if (checkpoint.ok()) checkpoint = results.checkpoint;
  }
  MR_ASSIGN_OR_RETURN(results.checkpoint, checkpoint);
  if (results.checkpoint.empty()) return NotFound("the chief found no checkpoint for the evaluation");
  MR_ASSIGN_OR_RETURN(ModelGraph graph, BuildModel({.mode = ModelMode::kEval,
                                                    .model = model_,
                                                    .params = options_.params,
                                                    .config = config_,
                                                    .strategy = strategy},
                                                   input));
  if (graph.empty) return OutOfRange("the input of the evaluation has no batch");
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<MonitoredSession> session,
      ReadingSession(graph, config_, strategy, Joined(graph.spec.evaluation_hooks, options.hooks), results.checkpoint));
  MR_ASSIGN_OR_RETURN(const MonitoredStep step, session->MakeStep(graph.feeds, {}, {graph.update}));
  std::vector<Tensor> batch;
  Tensors nothing;
  bool at_end = false;
  for (int64_t done = 0; !session->ShouldStop() && !at_end && done != options.steps.value_or(-1); ++done) {
    MR_ASSIGN_OR_RETURN(const bool more, graph.input->Next(&batch));
    const Status status = more ? step.Run(batch, &nothing) : absl::OkStatus();
    at_end = !more || (absl::IsOutOfRange(status) && graph.feeds.empty());
    if (!at_end) MR_RETURN_IF_ERROR(status);
  }
  std::vector<Output> fetches;
  for (const auto& [name, value] : graph.metrics) fetches.push_back(value);
  fetches.push_back(*FindGlobalStep(graph.scope));
  MR_ASSIGN_OR_RETURN(const Tensors values, session->raw_session()->Run(fetches));
  for (size_t i = 0; i < graph.metrics.size(); ++i) results.values[graph.metrics[i].first] = values[i];
  results.global_step = values.back().scalar<int64_t>();
  MR_RETURN_IF_ERROR(session->Close());
  MR_LOG(Info, "evaluated ", results.checkpoint, ": ", results.ToString());
  results.events_dir = EvalDir(options.name);
  if (strategy == nullptr || strategy->is_chief()) MR_RETURN_IF_ERROR(WriteResults(results.events_dir, results));
  return results;
}

StatusOr<std::unique_ptr<Predictions>> Estimator::Predict(const InputFn& input, PredictOptions options) {
  MR_ASSIGN_OR_RETURN(const std::string checkpoint, CheckpointFor(options.checkpoint_path, "prediction"));
  MR_ASSIGN_OR_RETURN(
      ModelGraph graph,
      BuildModel({.mode = ModelMode::kPredict, .model = model_, .params = options_.params, .config = config_}, input));
  if (graph.empty) return std::unique_ptr<Predictions>(new NoPredictions);
  std::vector<std::string> names = options.predict_keys;
  const OutputMap& all = graph.spec.predictions;
  if (names.empty()) {
    for (const auto& [name, value] : all) names.push_back(name);
  }
  std::vector<Output> fetches;
  for (const std::string& name : names) {
    const auto found = all.find(name);
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const auto& [other, value] : all) known.push_back(other);
      return NotFound("there is no prediction '", name, "'; the names are: ", absl::StrJoin(known, ", "));
    }
    fetches.push_back(found->second);
  }
  MR_ASSIGN_OR_RETURN(
      std::unique_ptr<MonitoredSession> session,
      ReadingSession(graph, config_, nullptr, Joined(graph.spec.prediction_hooks, options.hooks), checkpoint));
  MR_ASSIGN_OR_RETURN(MonitoredStep step, session->MakeStep(graph.feeds, fetches));
  return std::unique_ptr<Predictions>(new GraphPredictions(std::move(graph), std::move(session), std::move(names), step,
                                                           options.yield_single_examples));
}

StatusOr<std::string> Estimator::ExportSavedModel(const std::string& export_dir_base,
                                                  const ServingInputFn& serving_input, const ExportOptions& options) {
  if (export_dir_base.empty()) return InvalidArgument("the name of the folder for exports is empty");
  if (serving_input == nullptr) return InvalidArgument("the export has no serving input function");
  MR_ASSIGN_OR_RETURN(const std::string checkpoint, CheckpointFor(options.checkpoint_path, "export"));
  return estimator_internal::ExportModel(
      {.mode = ModelMode::kPredict, .model = model_, .params = options_.params, .config = config_}, export_dir_base,
      checkpoint, serving_input, options);
}

}  // namespace millrace
