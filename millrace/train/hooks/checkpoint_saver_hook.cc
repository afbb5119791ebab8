#include "millrace/train/hooks/checkpoint_saver_hook.h"

#include <utility>

#include "millrace/api/scope_state.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/train/checkpoint/checkpoint_directory.h"

namespace millrace {

// State that the training loop and the saving thread share.
struct CheckpointSaverHook::Background {
  Mutex mu;
  CondVar changed;
  bool running ABSL_GUARDED_BY(mu) = false;  // the saving thread runs
  bool stop ABSL_GUARDED_BY(mu) = false;
  bool busy ABSL_GUARDED_BY(mu) = false;  // a save was handed over and has not ended
  absl::AnyInvocable<Status()> job ABSL_GUARDED_BY(mu);
  bool end_wanted ABSL_GUARDED_BY(mu) = false;  // a listener requested the end of the training

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
        changed.SignalAll();
      } else if (stop) {
        break;
      } else {
        changed.Wait(&mu);
      }
    }
    running = false;
    busy = false;
    changed.SignalAll();
    mu.Unlock();
    return status;
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
    saved_step_ = step;
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
  if (!cadence_.IsDue(about) || background_->IsBusy()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(context->session));
  if (!cadence_.IsDue(step)) return absl::OkStatus();
  MR_RETURN_IF_ERROR(options_.background ? StartSave(context->session, step) : Save(context->session, step));
  MutexLock lock(&background_->mu);
  if (background_->end_wanted) context->RequestStop();
  return absl::OkStatus();
}

Status CheckpointSaverHook::End(ClientSession* session) {
  background_->WaitUntilIdle();
  MR_ASSIGN_OR_RETURN(const int64_t step, Step(session));
  if (saved_step_ != step) MR_RETURN_IF_ERROR(Save(session, step));
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

Status CheckpointSaverHook::Save(ClientSession* session, int64_t step) {
  background_->WaitUntilIdle();
  cadence_.Done(step);
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->BeforeSave(session, step));
  MR_ASSIGN_OR_RETURN(const std::string prefix, saver()->Save(session, Prefix(), {.global_step = step}));
  saved_step_ = step;
  return AfterSave(session, step, prefix);
}

Status CheckpointSaverHook::StartSave(ClientSession* session, int64_t step) {
  cadence_.Done(step);
  for (const auto& listener : options_.listeners) MR_RETURN_IF_ERROR(listener->BeforeSave(session, step));
  Saver::FinishSave finish = [this, session, step] { return saver()->Save(session, Prefix(), {.global_step = step}); };
  if (options_.of_one_step) {
    MR_ASSIGN_OR_RETURN(finish, saver()->BeginSave(session, Prefix(), {.global_step = step}));
  }
  saved_step_ = step;
  absl::AnyInvocable<Status()> work = [this, session, step, finish = std::move(finish)]() mutable -> Status {
    MR_ASSIGN_OR_RETURN(const std::string prefix, finish());
    return AfterSave(session, step, prefix);
  };
  return background_->HandOver(&work) ? absl::OkStatus() : work();
}

Status CheckpointSaverHook::AfterSave(ClientSession* session, int64_t step, const std::string& prefix) {
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
