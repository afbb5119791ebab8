#include "millrace/train/summary_saver_hook.h"

#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/base/log.h"

namespace millrace {

Status SummarySaverHook::Begin(const Scope& scope) {
  if (!options_.save_steps && !options_.save_every) return InvalidArgument("SummarySaverHook: say how often, by save_steps or save_every");
  MR_ASSIGN_OR_RETURN(cadence_, Cadence::Make("SummarySaverHook", options_.save_steps, options_.save_every, options_.clock));
  if (options_.writer == nullptr && options_.directory.empty()) return InvalidArgument("SummarySaverHook: give a directory or a writer");
  if (!scope.state().global_step) {
    return FailedPrecondition("SummarySaverHook: the graph has no global step; make it by GlobalStep(scope) and give it to the optimizer");
  }
  summary_ = options_.summary.empty() ? MergeAllSummaries(scope) : options_.summary;
  global_step_ = GlobalStep(scope);
  if (options_.writer == nullptr && own_writer_ == nullptr) {
    MR_ASSIGN_OR_RETURN(own_writer_, FileWriter::Create(options_.directory, {.clock = options_.clock}));
  }
  return scope.status();
}

Status SummarySaverHook::AfterCreateSession(ClientSession* session, Coordinator*) {
  MR_ASSIGN_OR_RETURN(const Tensors step, session->Run({global_step_}));
  step_ = step[0].scalar<int64_t>();
  ::tensorflow::SessionLog start;
  start.set_status(::tensorflow::SessionLog::START);
  Report(writer()->AddSessionLog(start, step_));
  return absl::OkStatus();
}

StatusOr<SessionRunArgs> SummarySaverHook::BeforeRun(SessionRunContext*) {
  SessionRunArgs args;
  // What was fetched last time is the step before this one.
  asked_ = !summary_.empty() && cadence_.IsDue(step_ + 1);
  if (asked_) {
    args.fetches = {global_step_, summary_};
  } else if (cadence_.counts_steps()) {
    args.fetches = {global_step_};
  }
  return args;
}

Status SummarySaverHook::AfterRun(SessionRunContext*, const SessionRunValues& values) {
  if (!values.results.empty()) step_ = values.results[0].scalar<int64_t>();
  if (!asked_) return absl::OkStatus();
  asked_ = false;
  cadence_.Done(step_);
  Report(writer()->AddSummary(values.results[1], step_));
  return absl::OkStatus();
}

Status SummarySaverHook::End(ClientSession*) {
  Report(writer()->Flush());
  return absl::OkStatus();
}

void SummarySaverHook::Report(const Status& status) {
  if (status.ok() || reported_) return;
  reported_ = true;
  MR_LOG(Warning, "summaries are lost, and training goes on without: ", status.message());
}

}  // namespace millrace
