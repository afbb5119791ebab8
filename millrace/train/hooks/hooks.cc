#include "millrace/train/hooks/hooks.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/tensor/tensor.h"
#include "millrace/train/global_step.h"

namespace millrace {
namespace {

StatusOr<Var> NeedGlobalStep(const Scope& scope, const char* hook) {
  const std::optional<Var> step = FindGlobalStep(scope);
  if (step) return *step;
  return FailedPrecondition(hook,
                            " needs a global step: create one with GlobalStep(scope) and pass it to the optimizer");
}

// The value as text: a number if it is a scalar.
std::string Text(const Tensor& tensor) {
  if (tensor.num_elements() == 1 && tensor.shape().rank() == 0) {
    switch (tensor.dtype()) {
      case DType::kFloat:
        return absl::StrFormat("%.6g", tensor.scalar<float>());
      case DType::kDouble:
        return absl::StrFormat("%.6g", tensor.scalar<double>());
      case DType::kInt32:
        return absl::StrCat(tensor.scalar<int32_t>());
      case DType::kInt64:
        return absl::StrCat(tensor.scalar<int64_t>());
      default:
        break;
    }
  }
  return tensor.DebugString();
}

}  // namespace

Status StopAtStepHook::Begin(const Scope& scope) {
  if (options_.num_steps.has_value() == options_.last_step.has_value())
    return InvalidArgument("StopAtStepHook needs exactly one of num_steps and last_step");
  MR_ASSIGN_OR_RETURN(global_step_, NeedGlobalStep(scope, "StopAtStepHook"));
  return absl::OkStatus();
}

Status StopAtStepHook::AfterCreateSession(ClientSession* session, Coordinator* coordinator) {
  if (last_step_) return absl::OkStatus();  // num_steps counts from the first session
  MR_ASSIGN_OR_RETURN(const int64_t step, ReadGlobalStep(session, global_step_));
  last_step_ = step + *options_.num_steps;
  return absl::OkStatus();
}

StatusOr<SessionRunArgs> StopAtStepHook::BeforeRun(SessionRunContext* context) {
  return SessionRunArgs{.fetches = {global_step_}};
}

Status StopAtStepHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  // The step may have been read before or after the run's own update, so it is read again near the end.
  int64_t step = values.results[0].scalar<int64_t>();
  if (step + 1 < *last_step_) return absl::OkStatus();
  if (step < *last_step_) {
    MR_ASSIGN_OR_RETURN(step, ReadGlobalStep(context->session, global_step_));
  }
  if (step >= *last_step_) context->RequestStop();
  return absl::OkStatus();
}

Status LoggingTensorHook::Begin(const Scope& scope) {
  if (!options_.every_runs && !options_.every && !options_.at_end) {
    return InvalidArgument("LoggingTensorHook needs every_runs, every or at_end");
  }
  MR_ASSIGN_OR_RETURN(cadence_,
                      Cadence::Make("LoggingTensorHook", options_.every_runs, options_.every, options_.clock));
  if (options_.tensors.empty()) return InvalidArgument("LoggingTensorHook has no tensors");
  for (const auto& [name, tensor] : options_.tensors) {
    if (tensor.empty()) return InvalidArgument("the tensor '", name, "' of a LoggingTensorHook is empty");
    args_.fetches.push_back(tensor);
  }
  return absl::OkStatus();
}

StatusOr<SessionRunArgs> LoggingTensorHook::BeforeRun(SessionRunContext* context) {
  due_ = cadence_.IsDue(iteration_);
  return due_ ? args_ : SessionRunArgs();
}

Status LoggingTensorHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  if (due_) Log(values.results);
  ++iteration_;
  return absl::OkStatus();
}

Status LoggingTensorHook::End(ClientSession* session) {
  if (!options_.at_end) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const Tensors values, session->Run(args_.fetches));
  Log(values);
  return absl::OkStatus();
}

void LoggingTensorHook::Log(const Tensors& values) {
  cadence_.Done(iteration_);
  const absl::Time now = options_.clock->Now();
  const std::optional<absl::Time> before = std::exchange(logged_, now);
  std::vector<std::pair<std::string, Tensor>> named;
  std::vector<std::string> words;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [name, tensor] = options_.tensors[i];
    named.emplace_back(name.empty() ? tensor.name() : name, values[i]);
    words.push_back(absl::StrCat(named.back().first, " = ", Text(values[i])));
  }
  std::string line = options_.formatter != nullptr ? options_.formatter(named) : absl::StrJoin(words, ", ");
  if (options_.formatter == nullptr && before)
    absl::StrAppendFormat(&line, " (%.3g s)", absl::ToDoubleSeconds(now - *before));
  if (options_.sink != nullptr) {
    options_.sink(line);
  } else {
    MR_LOG(Info, line);
  }
}

Status NanTensorHook::Begin(const Scope& scope) {
  if (loss_.empty()) return InvalidArgument("the tensor of a NanTensorHook is empty");
  if (loss_.dtype() != DType::kFloat && loss_.dtype() != DType::kDouble) {
    return InvalidArgument("NanTensorHook needs a float or double tensor, but ", loss_.name(), " is ", loss_.dtype());
  }
  return absl::OkStatus();
}

Status NanTensorHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  const Tensor& loss = values.results[0];
  bool nan = false;
  if (loss.dtype() == DType::kFloat) {
    for (const float x : loss.flat<float>()) nan |= std::isnan(x);
  } else {
    for (const double x : loss.flat<double>()) nan |= std::isnan(x);
  }
  if (!nan) return absl::OkStatus();
  if (options_.fail_on_nan_loss)
    return InvalidArgument("the loss ", loss_.name(), " is not a number (NaN): the training diverged");
  MR_LOG(Warning, "the loss ", loss_.name(), " is not a number (NaN): the training stops");
  context->RequestStop();
  return absl::OkStatus();
}

Status FinalOpsHook::End(ClientSession* session) {
  if (final_ops_.empty()) return absl::OkStatus();
  StatusOr<Tensors> values = session->Run(feeds_, final_ops_);
  if (!values.ok()) return WithPrefix("final ops: ", values.status());
  values_ = *std::move(values);
  return absl::OkStatus();
}

Status GlobalStepWaiterHook::Begin(const Scope& scope) {
  MR_ASSIGN_OR_RETURN(global_step_, NeedGlobalStep(scope, "GlobalStepWaiterHook"));
  return absl::OkStatus();
}

StatusOr<SessionRunArgs> GlobalStepWaiterHook::BeforeRun(SessionRunContext* context) {
  if (reached_ || options_.wait_until_step <= 0) return SessionRunArgs();
  NamedWait wait("the training", options_.wait, options_.max_wait, nullptr);
  while (true) {
    MR_ASSIGN_OR_RETURN(const int64_t step, ReadGlobalStep(context->session, global_step_));
    if (step >= options_.wait_until_step) break;
    MR_RETURN_IF_ERROR(wait.Again(absl::StrCat("global step ", options_.wait_until_step, "; it is ", step)));
  }
  reached_ = true;
  return SessionRunArgs();
}

StatusOr<SessionRunArgs> FeedFnHook::BeforeRun(SessionRunContext* context) {
  MR_ASSIGN_OR_RETURN(ClientSession::Feeds feeds, feed_fn_());
  return SessionRunArgs{.feeds = std::move(feeds)};
}

Status ProgressHook::Begin(const Scope& scope) {
  if (const std::optional<Var> step = FindGlobalStep(scope)) {
    args_.fetches.push_back(*step);
    has_step_ = true;
  }
  if (!options_.loss.empty()) {
    if (options_.loss.dtype() != DType::kFloat && options_.loss.dtype() != DType::kDouble) {
      return InvalidArgument("the loss to report must be float or double, but ", options_.loss.name(), " is ",
                             options_.loss.dtype());
    }
    args_.fetches.push_back(options_.loss);
  }
  return absl::OkStatus();
}

StatusOr<SessionRunArgs> ProgressHook::BeforeRun(SessionRunContext* context) {
  const absl::Time now = options_.clock->Now();
  due_ = now >= told_ + absl::Milliseconds(100);
  if (!due_) return SessionRunArgs();
  told_ = now;
  return args_;
}

Status ProgressHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  if (!due_) return absl::OkStatus();
  TrainingProgress progress{.phase = "training"};
  if (has_step_) progress.step = last_step_ = values.results[0].scalar<int64_t>();
  if (!options_.loss.empty() && values.results.back().num_elements() == 1) {
    const Tensor& loss = values.results.back();
    progress.loss = loss.dtype() == DType::kFloat ? loss.flat<float>()[0] : loss.flat<double>()[0];
  }
  Report(progress);
  return absl::OkStatus();
}

Status ProgressHook::End(ClientSession* session) {
  if (has_step_) {
    MR_ASSIGN_OR_RETURN(const Tensors step, session->Run({args_.fetches[0]}));
    last_step_ = step[0].scalar<int64_t>();
  }
  Report({.step = last_step_, .phase = "ending"});
  return absl::OkStatus();
}

void ProgressHook::Resume(std::optional<int64_t> step) {
  last_step_ = step;
  told_ = absl::InfinitePast();
  Report({.step = step, .phase = "training"});
}

void ProgressHook::Report(const TrainingProgress& progress) {
  if (options_.report != nullptr) {
    options_.report(progress);
  } else {
    ReportProgress(progress);
  }
}

}  // namespace millrace
