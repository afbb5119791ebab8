// Numbered checkpoints of a directory, of which the newest are kept.
//
//   CheckpointManager manager(scope, "train", {.max_to_keep = 3});
//   ... // create the session, run the initializers
//   MR_RETURN_IF_ERROR(manager.RestoreOrInitialize(&session, init).status());
//   ... // train
//   MR_RETURN_IF_ERROR(manager.Save(&session).status());           // train/ckpt-1, train/ckpt-2, ...
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/checkpoint/saver.h"

namespace millrace {

struct CheckpointManagerOptions {
  std::string checkpoint_name = "ckpt";
  // What is saved; see SaverOptions, whose max_to_keep and keep_checkpoint_every say what is kept.
  SaverOptions saver = {};
};

// A Saver with a directory. As a Saver, make it when the model is complete and before a session exists; not
// thread-safe. Checkpoints that an earlier process left in the directory are counted and removed as its own.
class CheckpointManager {
 public:
  CheckpointManager(const Scope& scope, std::string directory, CheckpointManagerOptions options = {});

  // Saves "DIRECTORY/NAME-NUMBER", whose prefix it returns. By default the number is one more than that of the newest
  // checkpoint. INVALID_ARGUMENT for a negative one.
  StatusOr<std::string> Save(ClientSession* session, std::optional<int64_t> checkpoint_number = std::nullopt);
  // Restores the newest checkpoint and returns its prefix; "" if there is none.
  StatusOr<std::string> Restore(ClientSession* session);
  // The same, but runs `init` if there is none.
  StatusOr<std::string> RestoreOrInitialize(ClientSession* session, const Operation& init);

  // "" if there is none.
  StatusOr<std::string> latest_checkpoint() const;
  // The checkpoints that are kept, oldest first.
  StatusOr<std::vector<std::string>> checkpoints();
  const std::string& directory() const { return directory_; }
  Saver& saver() { return saver_; }

 private:
  Status Recover();

  const std::string directory_;
  const std::string name_;
  FileSystem* const files_;
  Saver saver_;
  bool recovered_ = false;
};

}  // namespace millrace
