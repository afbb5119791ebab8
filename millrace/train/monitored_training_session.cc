#include "millrace/train/monitored_training_session.h"

#include <optional>
#include <utility>

#include "millrace/train/global_step.h"
#include "millrace/train/hooks/checkpoint_saver_hook.h"
#include "millrace/train/hooks/hooks.h"
#include "millrace/train/hooks/profiler_hook.h"
#include "millrace/train/hooks/step_counter_hook.h"
#include "millrace/train/hooks/summary_saver_hook.h"
#include "millrace/train/named_wait.h"

namespace millrace {
namespace {

// How often something is done, in steps or in time; never if neither is set.
struct HowOften {
  std::optional<int64_t> steps;
  std::optional<absl::Duration> time;
  bool never() const { return !steps && !time; }
};

// The interval that the user gave, or else the default. Zero, or an infinite time, means never.
StatusOr<HowOften> Choose(const char* what, std::optional<int64_t> steps, std::optional<absl::Duration> time,
                          HowOften otherwise) {
  if (steps && *steps < 0) return InvalidArgument(what, "_every_steps is ", *steps);
  if (time && *time < absl::ZeroDuration()) return InvalidArgument(what, "_every is ", absl::FormatDuration(*time));
  HowOften chosen = steps || time ? HowOften{steps, time} : otherwise;
  if (chosen.steps == 0) chosen.steps.reset();
  if (chosen.time && (*chosen.time == absl::ZeroDuration() || *chosen.time == absl::InfiniteDuration()))
    chosen.time.reset();
  if (chosen.steps && chosen.time) return InvalidArgument("give one of ", what, "_every_steps and ", what, "_every");
  return chosen;
}

// The chief's hooks and the writer that they share. The shared_ptr to each hook keeps the whole struct alive.
struct ChiefServices {
  std::shared_ptr<Scaffold> scaffold;
  std::unique_ptr<FileWriter> writer;
  std::optional<StepCounterHook> step_counter;
  std::optional<SummarySaverHook> summaries;
  std::optional<CheckpointSaverHook> checkpoints;
};

StatusOr<Hooks> MakeChiefHooks(const Scope& scope, const MonitoredTrainingSessionOptions& options,
                               const HowOften& save_checkpoint, const HowOften& save_summaries) {
  auto services = std::make_shared<ChiefServices>();
  services->scaffold = options.scaffold;
  Hooks hooks;
  const auto add = [&](SessionRunHook* hook) { hooks.push_back(std::shared_ptr<SessionRunHook>(services, hook)); };
  const std::string& events = options.summary_dir.empty() ? options.checkpoint_dir : options.summary_dir;
  const bool counts = FindGlobalStep(scope).has_value();
  if (!events.empty()) {
    MR_ASSIGN_OR_RETURN(services->writer, FileWriter::Create(events, {.clock = options.wait.clock}));
  }
  if (!events.empty() && counts && options.log_step_count_every_steps > 0) {
    add(&services->step_counter.emplace(StepCounterHookOptions{.every_steps = options.log_step_count_every_steps,
                                                               .writer = services->writer.get(),
                                                               .clock = options.wait.clock}));
  }
  if (!events.empty() && !save_summaries.never() && !options.scaffold->summary_op.empty()) {
    add(&services->summaries.emplace(SummarySaverHookOptions{.every_steps = save_summaries.steps,
                                                             .every = save_summaries.time,
                                                             .writer = services->writer.get(),
                                                             .summary_op = options.scaffold->summary_op,
                                                             .clock = options.wait.clock}));
  }
  if (!options.checkpoint_dir.empty() && !save_checkpoint.never()) {
    add(&services->checkpoints.emplace(CheckpointSaverHookOptions{.checkpoint_dir = options.checkpoint_dir,
                                                                  .every_steps = save_checkpoint.steps,
                                                                  .every = save_checkpoint.time,
                                                                  .saver = options.scaffold->saver.get(),
                                                                  .listeners = options.saving_listeners,
                                                                  .background = options.save_in_background,
                                                                  .writer = services->writer.get(),
                                                                  .waits = WaitsOfServer(options.master),
                                                                  .clock = options.wait.clock}));
  }
  return hooks;
}

}  // namespace

StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(const Scope& scope,
                                                                     MonitoredTrainingSessionOptions options) {
  MR_RETURN_IF_ERROR(scope.status());
  if (!options.session.target.empty() && options.session.target != options.master) {
    return InvalidArgument("the session's target '", options.session.target, "' is not the master '", options.master,
                           "'");
  }
  MR_ASSIGN_OR_RETURN(const HowOften save_checkpoint,
                      Choose("save_checkpoint", options.save_checkpoint_every_steps, options.save_checkpoint_every,
                             {.steps = std::nullopt, .time = absl::Seconds(600)}));
  MR_ASSIGN_OR_RETURN(const HowOften save_summaries,
                      Choose("save_summaries", options.save_summaries_every_steps, options.save_summaries_every,
                             {.steps = 100, .time = std::nullopt}));
  if (options.scaffold == nullptr) options.scaffold = std::make_shared<Scaffold>();
  SessionOptions session = options.session;
  session.target = options.master;
  MonitoredSessionOptions monitored{.loss = options.loss,
                                    .stop_grace_period = options.stop_grace_period,
                                    .max_wait = options.max_wait,
                                    .recover = options.recover,
                                    .wait = options.wait,
                                    .is_chief = options.is_chief,
                                    .notices = options.notices};
  std::unique_ptr<SessionCreator> creator;
  if (options.is_chief) {
    creator = ChiefSessionCreator({.session = session,
                                   .scaffold = options.scaffold,
                                   .checkpoint_dir = options.checkpoint_dir,
                                   .checkpoint_filename_with_path = options.checkpoint_filename_with_path,
                                   .keep_values = options.keep_values,
                                   .max_wait = options.max_wait});
    monitored.late_hooks = [&] { return MakeChiefHooks(scope, options, save_checkpoint, save_summaries); };
    monitored.hooks.insert(monitored.hooks.end(), options.chief_only_hooks.begin(), options.chief_only_hooks.end());
  } else {
    creator = WorkerSessionCreator({.session = session, .scaffold = options.scaffold, .max_wait = options.max_wait});
  }
  monitored.hooks.insert(monitored.hooks.end(), options.hooks.begin(), options.hooks.end());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<SessionRunHook> profiler, ProfilerHookFromEnvironment(options.master));
  if (profiler != nullptr) monitored.hooks.push_back(std::move(profiler));
  return MonitoredSession::Create(scope, std::move(creator), std::move(monitored));
}

}  // namespace millrace
