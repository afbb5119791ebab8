#include "millrace/train/hooks/checkpoint_saver_hook.h"

#include <limits>
#include <utility>

#include "millrace/api/scope_state.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/train/checkpoint/checkpoint_directory.h"
#include "millrace/train/progress.h"

namespace millrace {
namespace {

// How often lateness is said at most.
constexpr absl::Duration kSayAgain = absl::Seconds(10);

}  // namespace

// State that the training loop and the saving thread share.
struct CheckpointSaverHook::Background {
  Mutex mu;
  CondVar changed;
  bool running ABSL_GUARDED_BY(mu) = false;  // the saving thread runs
  bool stop ABSL_GUARDED_BY(mu) = false;
  bool busy ABSL_GUARDED_BY(mu) = false;  // a save was handed over and has not ended
  absl::AnyInvocable<Status()> job ABSL_GUARDED_BY(mu);
  bool end_wanted ABSL_GUARDED_BY(mu) = false;  // a listener requested the end of the training
  // The save that runs, and the last that succeeded, or the beginning.
  std::string prefix ABSL_GUARDED_BY(mu);
  absl::Time begun ABSL_GUARDED_BY(mu) = absl::InfinitePast();
  absl::Time saved ABSL_GUARDED_BY(mu) = absl::InfiniteFuture();
  int64_t saved_step ABSL_GUARDED_BY(mu) = std::numeric_limits<int64_t>::max();
  // When lateness is said again, and where it is listed.
  absl::Time say_at ABSL_GUARDED_BY(mu) = absl::InfinitePast();
  std::shared_ptr<WaitRegistry> waits ABSL_GUARDED_BY(mu);
  uint64_t wait ABSL_GUARDED_BY(mu) = 0;

  void Begin(std::string which, absl::Time now) {
    MutexLock lock(&mu);
    prefix = std::move(which);
    begun = now;
  }
  void Saved(int64_t step, absl::Time now) {
    MutexLock lock(&mu);
    saved = now;
    saved_step = step;
  }
  int64_t SavedStep() {
    MutexLock lock(&mu);
    return saved_step;
  }
  void Stop() {
    MutexLock lock(&mu);
    stop = true;
    changed.SignalAll();
  }
  bool IsBusy() {
    MutexLock lock(&mu);
    return busy;
  }
  void WaitUntilIdle() {
    MutexLock lock(&mu);
    while (busy) changed.Wait(&mu);
  }
  // Returns false if there is no thread to take it.
  bool HandOver(absl::AnyInvocable<Status()>* work) {
    MutexLock lock(&mu);
    if (!running || stop) return false;
    busy = true;
    job = std::move(*work);
    changed.SignalAll();
    return true;
  }
  // Runs until the stop, and finishes a save that was handed over before it.
  Status Loop() {
    Status status;
    mu.Lock();
    while (status.ok()) {
      if (job != nullptr) {
        absl::AnyInvocable<Status()> work = std::exchange(job, nullptr);
        mu.Unlock();
        status = work();
        work = nullptr;
        mu.Lock();
        busy = false;
        Unlist();
        changed.SignalAll();
      } else if (stop) {
        break;
      } else {
        changed.Wait(&mu);
      }
    }
    running = false;
    busy = false;
    Unlist();
    changed.SignalAll();
    mu.Unlock();
    return status;
  }
  void Unlist() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (waits != nullptr) waits->End(std::exchange(wait, 0));
  }
};

CheckpointSaverHook::CheckpointSaverHook(CheckpointSaverHookOptions options)
    : options_(std::move(options)), background_(std::make_shared<Background>()) {}

CheckpointSaverHook::~CheckpointSaverHook() {
  background_->Stop();
  background_->WaitUntilIdle();
}

Status CheckpointSaverHook::Begin(const Scope& scope) {
  if (options_.checkpoint_dir.empty()) return InvalidArgument("CheckpointSaverHook: give a checkpoint_dir");
  if (!options_.every_steps && !options_.every) return InvalidArgument("CheckpointSaverHook: set every_steps or every");
  MR_ASSIGN_OR_RETURN(cadence_,
                      Cadence::Make("CheckpointSaverHook", options_.every_steps, options_.every, options_.clock));
  if (!api_internal::StateOf(scope).global_step) {
    return FailedPrecondition(
        "CheckpointSaverHook: the graph has no global step; create one with GlobalStep(scope) and pass it to the "
        "optimizer");
  }
  global_step_ = GlobalStep(scope);
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->Begin(scope));
  if (options_.saver == nullptr) own_saver_ = std::make_unique<Saver>(scope, options_.saver_options);
  return scope.status();
}

Status CheckpointSaverHook::AfterCreateSession(ClientSession* session, Coordinator* coordinator) {
  background_ = std::make_shared<Background>();
  if (options_.background && coordinator != nullptr) {
    {
      MutexLock lock(&background_->mu);
      background_->running = true;
    }
    MR_RETURN_IF_ERROR(coordinator->Start("saving checkpoints", [shared = background_] { return shared->Loop(); }));
    coordinator->OnStop([shared = background_] { shared->Stop(); });
  }
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(session));
  if (std::exchange(first_session_, false)) {
    MR_RETURN_IF_ERROR(saver()->RecoverLastCheckpoints(options_.checkpoint_dir));
    RemoveLeftovers(Prefix(), saver()->options().files);
    if (options_.writer != nullptr) {
      const StatusOr<::tensorflow::MetaGraphDef> graph = saver()->MetaGraph();
      Status written = graph.status();
      if (written.ok()) written = options_.writer->AddGraph(graph->graph_def(), step);
      if (written.ok()) written = options_.writer->AddMetaGraph(*graph, step);
      if (!written.ok()) MR_LOG(Warning, "cannot write the graph to the event file: ", written.message());
    }
  }
  // Saving it again would remove a good checkpoint for a moment.
  MR_ASSIGN_OR_RETURN(const std::string latest,
                      LatestCheckpoint(options_.checkpoint_dir, "checkpoint", saver()->options().files));
  if (!latest.empty() && latest == absl::StrCat(Prefix(), "-", step)) {
    cadence_.Done(step);
    background_->Saved(step, options_.clock->Now());
    return absl::OkStatus();
  }
  return Save(session, step);
}

StatusOr<SessionRunArgs> CheckpointSaverHook::BeforeRun(SessionRunContext*) {
  SessionRunArgs args;
  if (cadence_.counts_steps()) args.fetches = {global_step_};
  return args;
}

Status CheckpointSaverHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  {
    MutexLock lock(&background_->mu);
    if (background_->end_wanted) context->RequestStop();
  }
  // The step was fetched with the run, which may have incremented it after that.
  const int64_t about = values.results.empty() ? 0 : values.results[0].scalar<int64_t>() + 1;
  if (!cadence_.IsDue(about)) return absl::OkStatus();
  SayIfLate(about);
  if (background_->IsBusy()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(context->session));
  if (!cadence_.IsDue(step)) return absl::OkStatus();
  MR_RETURN_IF_ERROR(options_.background ? StartSave(context->session, step) : Save(context->session, step));
  MutexLock lock(&background_->mu);
  if (background_->end_wanted) context->RequestStop();
  return absl::OkStatus();
}

StatusOr<std::string> CheckpointSaverHook::OnNotice(ClientSession* session) {
  background_->WaitUntilIdle();
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(session));
  if (background_->SavedStep() != step) MR_RETURN_IF_ERROR(Save(session, step));
  return absl::StrCat(options_.checkpoint_basename, "-", step);
}

Status CheckpointSaverHook::End(ClientSession* session) {
  background_->WaitUntilIdle();
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(session));
  if (background_->SavedStep() != step) MR_RETURN_IF_ERROR(Save(session, step));
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->End(session, step));
  return absl::OkStatus();
}

void CheckpointSaverHook::WaitForSave() { background_->WaitUntilIdle(); }

StatusOr<int64_t> CheckpointSaverHook::Step(ClientSession* session) const {
  MR_ASSIGN_OR_RETURN(const Tensors step, session->Run({global_step_}));
  return step[0].scalar<int64_t>();
}

std::string CheckpointSaverHook::Prefix() const {
  return JoinPath(options_.checkpoint_dir, options_.checkpoint_basename);
}

void CheckpointSaverHook::SayIfLate(int64_t step) {
  const absl::Time now = options_.clock->Now();
  const auto age = [&](absl::Time since) {
    return absl::FormatDuration(absl::Trunc(now - since, absl::Milliseconds(100)));
  };
  Background& background = *background_;
  MutexLock lock(&background.mu);
  const bool late = options_.every ? now - background.saved >= 2 * *options_.every
                                   : step - background.saved_step >= 2 * *options_.every_steps;
  if (!late || now < background.say_at) return;
  background.say_at = now + std::max(options_.every.value_or(kSayAgain), kSayAgain);
  const std::string due =
      options_.every ? absl::FormatDuration(*options_.every) : absl::StrCat(*options_.every_steps, " steps");
  std::string which = "no step ended when it was due";
  if (background.busy) {
    which = absl::StrCat("the save of ", background.prefix, " began ", age(background.begun), " ago and has not ended");
  } else if (background.begun > background.saved) {
    which = "the last ones failed";
  }
  const std::string text =
      absl::StrCat("no checkpoint has been saved for ", age(background.saved), ", one is due every ", due, ": ", which);
  MR_LOG(Warning, text);
  if (!background.busy || options_.waits == nullptr) return;
  background.waits = options_.waits;
  background.Unlist();
  background.wait = options_.waits->Begin({.node = "saving checkpoints", .what = text, .resource = "checkpoints"});
}

Status CheckpointSaverHook::Save(ClientSession* session, int64_t step) {
  background_->WaitUntilIdle();
  cadence_.Done(step);
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->BeforeSave(session, step));
  MR_ASSIGN_OR_RETURN(const std::string prefix, saver()->Save(session, Prefix(), {.global_step = step}));
  return AfterSave(session, step, prefix);
}

Status CheckpointSaverHook::StartSave(ClientSession* session, int64_t step) {
  cadence_.Done(step);
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->BeforeSave(session, step));
  Saver::FinishSave finish = [this, session, step] { return saver()->Save(session, Prefix(), {.global_step = step}); };
  if (options_.of_one_step) {
    MR_ASSIGN_OR_RETURN(finish, saver()->BeginSave(session, Prefix(), {.global_step = step}));
  }
  background_->Begin(absl::StrCat(Prefix(), "-", step), options_.clock->Now());
  absl::AnyInvocable<Status()> work = [this, session, step, finish = std::move(finish)]() mutable -> Status {
    const StatusOr<std::string> prefix = finish();
    if (absl::IsDeadlineExceeded(prefix.status())) {
      MR_LOG(Warning, prefix.status().message(),
             "; the training goes on, and the next checkpoint is saved when it is due");
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(prefix.status());
    return AfterSave(session, step, *prefix);
  };
  return background_->HandOver(&work) ? absl::OkStatus() : work();
}

Status CheckpointSaverHook::AfterSave(ClientSession* session, int64_t step, const std::string& prefix) {
  background_->Saved(step, options_.clock->Now());
  ReportProgress({.saved = step});
  if (options_.writer != nullptr) {
    ::tensorflow::SessionLog log;
    log.set_status(::tensorflow::SessionLog::CHECKPOINT);
    log.set_checkpoint_path(prefix);
    if (const Status added = options_.writer->AddSessionLog(log, step); !added.ok()) {
      MR_LOG(Warning, "cannot write a checkpoint's entry to the event file: ", added.message());
    }
  }
  for (const auto& listener : options_.listeners) {
    MR_ASSIGN_OR_RETURN(const bool end, listener->AfterSave(session, step, prefix));
    if (!end) continue;
    MutexLock lock(&background_->mu);
    background_->end_wanted = true;
  }
  return absl::OkStatus();
}

}  // namespace millrace
