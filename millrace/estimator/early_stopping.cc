#include "millrace/estimator/early_stopping.h"

#include <utility>

#include "absl/strings/match.h"
#include "millrace/api/op_call.h"
#include "millrace/base/log.h"
#include "millrace/io/record.h"
#include "millrace/proto/event.pb.h"
#include "millrace/proto/summary.pb.h"
#include "millrace/train/global_step.h"
#include "millrace/train/hooks/cadence.h"

namespace millrace {
namespace {

class StopEarly : public SessionRunHook {
 public:
  StopEarly(const RunConfig& config, std::function<StatusOr<bool>()> should_stop, EarlyStoppingOptions options)
      : strategy_(config.options().train_distribute),
        is_chief_(strategy_ != nullptr ? strategy_->is_chief() : config.is_chief()),
        together_(strategy_ != nullptr && strategy_->is_synchronous() && strategy_->num_workers() > 1),
        shared_(config.num_ps_replicas() > 0 && (strategy_ == nullptr || !strategy_->is_synchronous())),
        should_stop_(std::move(should_stop)),
        options_(std::move(options)) {}

  Status Begin(const Scope& scope) override {
    if (together_ && !options_.run_every_steps) {
      return InvalidArgument("EarlyStoppingHook: the workers of ", strategy_->name(),
                             " look at the same step: set run_every_steps");
    }
    if (!options_.run_every_steps && !options_.run_every_secs) options_.run_every_secs = absl::Seconds(60);
    MR_ASSIGN_OR_RETURN(cadence_, Cadence::Make("EarlyStoppingHook", options_.run_every_steps, options_.run_every_secs,
                                                options_.clock));
    const std::optional<Var> step = FindGlobalStep(scope);
    if (!step) return FailedPrecondition("EarlyStoppingHook needs a global step");
    args_.fetches = {*step};
    if (!shared_) return absl::OkStatus();
    // A variable beside the global step that has a value only if the training is to end: it needs no initialisation,
    // and no place in checkpoints.
    const Scope s = scope.WithPrefix("signal_early_stopping").ColocateWith(step->handle().op());
    const Output stop = Op(s.WithOpName("STOP"), "VarHandleOp", {},
                           {{"dtype", DType::kBool},
                            {"shape", PartialShape::Scalar()},
                            {"shared_name", std::string("signal_early_stopping/STOP")}});
    if (is_chief_) {
      set_ = AddOp(s, "AssignVariableOp", {stop, true});
      reset_ = AddOp(s, "DestroyResourceOp", {stop}, {{"ignore_lookup_error", true}});
    } else {
      args_.fetches.push_back(Op(s, "VarIsInitializedOp", {stop}));
    }
    return scope.status();
  }

  Status AfterCreateSession(ClientSession* session, Coordinator*) override {
    if (!shared_ || !is_chief_ || !std::exchange(first_session_, false)) return absl::OkStatus();
    return session->Run(reset_);
  }

  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext*) override { return args_; }

  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override {
    const int64_t step = values.results[0].scalar<int64_t>();
    ++runs_;
    if (!is_chief_ && !together_) {
      if (shared_ && values.results[1].scalar<bool>()) context->RequestStop();
      return absl::OkStatus();
    }
    const int64_t counted = together_ ? runs_ : step;
    if (!cadence_.IsDue(counted)) return absl::OkStatus();
    cadence_.Done(counted);
    bool stop = false;
    if (is_chief_ && step >= options_.min_steps) {
      MR_ASSIGN_OR_RETURN(stop, should_stop_());
    }
    if (together_) {
      MR_ASSIGN_OR_RETURN(const std::string chief, strategy_->TextOfChief(stop ? "stop" : "go on"));
      stop = chief == "stop";
    }
    if (!stop) return absl::OkStatus();
    MR_LOG(Info, "the training ends early, at step ", step);
    if (shared_) MR_RETURN_IF_ERROR(context->session->Run(set_));
    context->RequestStop();
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Strategy> strategy_;
  const bool is_chief_;
  const bool together_;  // the workers make each step together
  const bool shared_;    // they have variables in common
  const std::function<StatusOr<bool>()> should_stop_;
  EarlyStoppingOptions options_;
  Cadence cadence_;
  SessionRunArgs args_;
  Operation set_, reset_;
  bool first_session_ = true;
  int64_t runs_ = 0;
};

// Calls `stop` with the values of one metric in the order of their steps, until it returns true.
std::shared_ptr<SessionRunHook> StopByMetric(const Estimator& estimator, const std::string& metric,
                                             const EarlyStoppingOptions& options,
                                             std::function<bool(const std::map<int64_t, double>& values)> stop) {
  const std::string eval_dir = options.eval_dir.empty() ? estimator.EvalDir() : options.eval_dir;
  return EarlyStoppingHook(
      estimator,
      [=, min_steps = options.min_steps]() -> StatusOr<bool> {
        MR_ASSIGN_OR_RETURN(const auto all, ReadEvalMetrics(eval_dir));
        std::map<int64_t, double> values;
        for (const auto& [step, metrics] : all) {
          const auto found = metrics.find(metric);
          if (step >= min_steps && found != metrics.end()) values[step] = found->second;
          if (found == metrics.end() && !metrics.empty()) {
            return NotFound("early stopping: the evaluations in ", eval_dir, " have no metric '", metric, "'");
          }
        }
        return stop(values);
      },
      options);
}

std::shared_ptr<SessionRunHook> StopIfNotBetter(const Estimator& estimator, const std::string& metric, int64_t steps,
                                                double sign, const EarlyStoppingOptions& options) {
  return StopByMetric(estimator, metric, options, [=](const std::map<int64_t, double>& values) {
    std::optional<std::pair<int64_t, double>> best;
    for (const auto& [step, value] : values) {
      if (!best || sign * value > sign * best->second) best = {step, value};
      if (step - best->first >= steps) return true;
    }
    return false;
  });
}

std::shared_ptr<SessionRunHook> StopBeyond(const Estimator& estimator, const std::string& metric, double threshold,
                                           double sign, const EarlyStoppingOptions& options) {
  return StopByMetric(estimator, metric, options, [=](const std::map<int64_t, double>& values) {
    for (const auto& [step, value] : values) {
      if (sign * value > sign * threshold) return true;
    }
    return false;
  });
}

}  // namespace

StatusOr<std::map<int64_t, std::map<std::string, double>>> ReadEvalMetrics(const std::string& eval_dir) {
  FileSystem* const files = FileSystem::Posix();
  std::map<int64_t, std::map<std::string, double>> metrics;
  if (absl::IsNotFound(files->Exists(eval_dir))) return metrics;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(eval_dir));
  for (const std::string& name : names) {
    if (!absl::StrContains(name, "tfevents")) continue;
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<RecordReader> reader,
                        RecordReader::Open(files, JoinPath(eval_dir, name)));
    std::string record;
    while (true) {
      const StatusOr<bool> more = reader->Read(&record);
      if (!more.ok() || !*more) break;
      ::tensorflow::Event event;
      ::tensorflow::Summary summary;
      if (!event.ParseFromString(record) || !summary.ParseFromString(event.summary())) break;
      for (const auto& value : summary.value()) metrics[event.step()][value.tag()] = value.simple_value();
    }
  }
  return metrics;
}

std::shared_ptr<SessionRunHook> EarlyStoppingHook(const Estimator& estimator,
                                                  std::function<StatusOr<bool>()> should_stop,
                                                  const EarlyStoppingOptions& options) {
  return std::make_shared<StopEarly>(estimator.config(), std::move(should_stop), options);
}

std::shared_ptr<SessionRunHook> StopIfNoDecreaseHook(const Estimator& estimator, const std::string& metric,
                                                     int64_t max_steps_without_decrease,
                                                     const EarlyStoppingOptions& options) {
  return StopIfNotBetter(estimator, metric, max_steps_without_decrease, -1, options);
}
std::shared_ptr<SessionRunHook> StopIfNoIncreaseHook(const Estimator& estimator, const std::string& metric,
                                                     int64_t max_steps_without_increase,
                                                     const EarlyStoppingOptions& options) {
  return StopIfNotBetter(estimator, metric, max_steps_without_increase, 1, options);
}
std::shared_ptr<SessionRunHook> StopIfHigherHook(const Estimator& estimator, const std::string& metric,
                                                 double threshold, const EarlyStoppingOptions& options) {
  return StopBeyond(estimator, metric, threshold, 1, options);
}
std::shared_ptr<SessionRunHook> StopIfLowerHook(const Estimator& estimator, const std::string& metric, double threshold,
                                                const EarlyStoppingOptions& options) {
  return StopBeyond(estimator, metric, threshold, -1, options);
}

}  // namespace millrace
