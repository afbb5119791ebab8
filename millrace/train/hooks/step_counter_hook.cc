#include "millrace/train/hooks/step_counter_hook.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "millrace/base/log.h"
#include "millrace/train/global_step.h"

namespace millrace {

Status StepCounterHook::Begin(const Scope& scope) {
  if (!options_.every_steps && !options_.every) return InvalidArgument("StepCounterHook: set every_steps or every");
  MR_ASSIGN_OR_RETURN(cadence_, Cadence::Make("StepCounterHook", options_.every_steps, options_.every, options_.clock));
  const std::optional<Var> step = FindGlobalStep(scope);
  if (!step)
    return FailedPrecondition(
        "StepCounterHook needs a global step: create one with GlobalStep(scope) and pass it to the optimizer");
  args_.fetches = {*step};
  if (writer_ == nullptr && !options_.output_dir.empty()) {
    MR_ASSIGN_OR_RETURN(own_writer_, FileWriter::Create(options_.output_dir));
    writer_ = own_writer_.get();
  }
  return absl::OkStatus();
}

Status StepCounterHook::AfterCreateSession(ClientSession* session, Coordinator* coordinator) {
  last_.reset();
  return absl::OkStatus();
}

Status StepCounterHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  const int64_t step = values.results[0].scalar<int64_t>();
  if (last_ && !cadence_.IsDue(step)) return absl::OkStatus();
  cadence_.Done(step);
  const absl::Time now = options_.clock->Now();
  const std::optional<Mark> before = std::exchange(last_, Mark{now, step});
  if (!before || now <= before->time || step <= before->step) return absl::OkStatus();
  const double rate = static_cast<double>(step - before->step) / absl::ToDoubleSeconds(now - before->time);
  if (options_.sink != nullptr) {
    options_.sink(rate, step);
  } else {
    MR_LOG(Info, absl::StrFormat("global_step/sec: %.4g (step %d)", rate, step));
  }
  if (writer_ == nullptr) return absl::OkStatus();
  if (const Status status = writer_->AddScalar("global_step/sec", rate, step); !status.ok()) {
    MR_LOG(Warning, "steps per second are no longer written: ", status.ToString());
    writer_ = nullptr;
  }
  return absl::OkStatus();
}

}  // namespace millrace
