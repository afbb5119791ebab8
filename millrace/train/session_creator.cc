#include "millrace/train/session_creator.h"

#include <optional>
#include <utility>

#include "millrace/train/progress.h"

namespace millrace {
namespace {

SessionManagerOptions ManagerOptions(const Scaffold& scaffold, const WaitSettings& wait, std::string chief = {}) {
  return {.ready_op = scaffold.ready_op,
          .ready_for_local_init_op = scaffold.ready_for_local_init_op,
          .local_init_op = scaffold.local_init_op,
          .local_init_feed = scaffold.local_init_feed,
          .chief = std::move(chief),
          .wait = wait};
}

class Chief : public SessionCreator {
 public:
  explicit Chief(ChiefSessionCreatorOptions options) : options_(std::move(options)) {
    if (options_.scaffold == nullptr) options_.scaffold = std::make_shared<Scaffold>();
  }

  Status Begin(const Scope& scope) override {
    scope_ = scope;
    return options_.scaffold->Finalize(
        scope, {.saver = !options_.checkpoint_dir.empty() || !options_.checkpoint_filename_with_path.empty()});
  }

  StatusOr<PreparedSession> CreateSession(const CreateSessionOptions& create) override {
    const Scaffold& scaffold = *options_.scaffold;
    PrepareOptions prepare{.session = options_.session,
                           .init_op = scaffold.init_op,
                           .init_feed = scaffold.init_feed,
                           .init_fn = scaffold.init_fn,
                           .saver = scaffold.saver,
                           .checkpoint_dir = options_.checkpoint_dir,
                           .checkpoint_filename_with_path = options_.checkpoint_filename_with_path,
                           .keep_values = create.recovering ? true : options_.keep_values,
                           .restarted = RestartsByLauncher() > 0,
                           .values_follow = create.values_follow,
                           .max_wait = options_.max_wait};
    // After a loss the newest checkpoint is restored, not the one that the training began with.
    if (create.recovering && !options_.checkpoint_dir.empty() && scaffold.saver != nullptr) {
      MR_ASSIGN_OR_RETURN(const std::string newest, LatestCheckpoint(options_.checkpoint_dir));
      if (!newest.empty()) prepare.checkpoint_filename_with_path.clear();
    }
    return SessionManager(*scope_, ManagerOptions(scaffold, create.wait)).PrepareSession(prepare);
  }

 private:
  ChiefSessionCreatorOptions options_;
  std::optional<Scope> scope_;
};

class Worker : public SessionCreator {
 public:
  explicit Worker(WorkerSessionCreatorOptions options) : options_(std::move(options)) {
    if (options_.scaffold == nullptr) options_.scaffold = std::make_shared<Scaffold>();
  }

  Status Begin(const Scope& scope) override {
    scope_ = scope;
    // A worker does not save, so it does not need a saver's nodes.
    return options_.scaffold->Finalize(scope, {.saver = false});
  }

  StatusOr<PreparedSession> CreateSession(const CreateSessionOptions& create) override {
    return SessionManager(*scope_, ManagerOptions(*options_.scaffold, create.wait, options_.chief))
        .WaitForSession(options_.session, options_.max_wait);
  }

 private:
  WorkerSessionCreatorOptions options_;
  std::optional<Scope> scope_;
};

}  // namespace

std::unique_ptr<SessionCreator> ChiefSessionCreator(ChiefSessionCreatorOptions options) {
  return std::make_unique<Chief>(std::move(options));
}
std::unique_ptr<SessionCreator> WorkerSessionCreator(WorkerSessionCreatorOptions options) {
  return std::make_unique<Worker>(std::move(options));
}

}  // namespace millrace
