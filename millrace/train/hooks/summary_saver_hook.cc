#include "millrace/train/hooks/summary_saver_hook.h"

#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/base/log.h"

namespace millrace {

Status SummarySaverHook::Begin(const Scope& scope) {
  if (!options_.every_steps && !options_.every) return InvalidArgument("SummarySaverHook: set every_steps or every");
  MR_ASSIGN_OR_RETURN(cadence_,
                      Cadence::Make("SummarySaverHook", options_.every_steps, options_.every, options_.clock));
  if (options_.writer == nullptr && options_.output_dir.empty())
    return InvalidArgument("SummarySaverHook: give an output_dir or a writer");
  if (!api_internal::StateOf(scope).global_step) {
    return FailedPrecondition(
        "SummarySaverHook: the graph has no global step; create one with GlobalStep(scope) and pass it to the "
        "optimizer");
  }
  summary_ = options_.summary_op.empty() ? MergeAllSummaries(scope) : options_.summary_op;
  global_step_ = GlobalStep(scope);
  if (options_.writer == nullptr && own_writer_ == nullptr) {
    MR_ASSIGN_OR_RETURN(own_writer_, FileWriter::Create(options_.output_dir, {.clock = options_.clock}));
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
  // The last fetched step is the one before this run.
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
  MR_LOG(Warning, "summaries are lost; the training continues without them: ", status.message());
}

}  // namespace millrace
