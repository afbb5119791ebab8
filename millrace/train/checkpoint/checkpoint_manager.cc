#include "millrace/train/checkpoint/checkpoint_manager.h"

#include <algorithm>
#include <utility>

namespace millrace {

CheckpointManager::CheckpointManager(const Scope& scope, std::string directory, CheckpointManagerOptions options)
    : directory_(std::move(directory)),
      name_(options.checkpoint_name),
      files_(options.saver.files),
      saver_(scope, std::move(options.saver)) {
  if (directory_.empty()) scope.UpdateStatus(InvalidArgument("CheckpointManager: the directory's name is empty"));
  if (name_.empty() || name_.find('/') != std::string::npos)
    scope.UpdateStatus(InvalidArgument("CheckpointManager: '", name_, "' is not the name of a file"));
}

Status CheckpointManager::Recover() {
  if (std::exchange(recovered_, true)) return absl::OkStatus();
  return saver_.RecoverLastCheckpoints(directory_);
}

StatusOr<std::string> CheckpointManager::Save(ClientSession* session, std::optional<int64_t> checkpoint_number) {
  MR_RETURN_IF_ERROR(Recover());
  if (checkpoint_number.value_or(0) < 0) return InvalidArgument("the checkpoint's number is ", *checkpoint_number);
  if (!checkpoint_number) {
    int64_t newest = 0;
    for (const std::string& prefix : saver_.last_checkpoints())
      newest = std::max(newest, StepOfCheckpoint(prefix).value_or(0));
    checkpoint_number = newest + 1;
  }
  return saver_.Save(session, JoinPath(directory_, name_), {.global_step = checkpoint_number});
}

StatusOr<std::string> CheckpointManager::Restore(ClientSession* session) {
  MR_RETURN_IF_ERROR(Recover());
  MR_ASSIGN_OR_RETURN(std::string newest, latest_checkpoint());
  if (!newest.empty()) MR_RETURN_IF_ERROR(saver_.Restore(session, newest));
  return newest;
}

StatusOr<std::string> CheckpointManager::RestoreOrInitialize(ClientSession* session, const Operation& init) {
  MR_ASSIGN_OR_RETURN(std::string newest, Restore(session));
  if (newest.empty()) MR_RETURN_IF_ERROR(session->Run(init));
  return newest;
}

StatusOr<std::string> CheckpointManager::latest_checkpoint() const {
  return LatestCheckpoint(directory_, "checkpoint", files_);
}

StatusOr<std::vector<std::string>> CheckpointManager::checkpoints() {
  MR_RETURN_IF_ERROR(Recover());
  return saver_.last_checkpoints();
}

}  // namespace millrace
