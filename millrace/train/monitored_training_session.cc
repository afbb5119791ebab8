#include <utility>

#include "millrace/train/hooks.h"
#include "millrace/train/monitored_session.h"

namespace millrace {

StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(const Scope& scope, MonitoredTrainingSessionOptions options) {
  MR_RETURN_IF_ERROR(scope.status());
  if (!options.session.target.empty() && options.session.target != options.master) {
    return InvalidArgument("the session's target '", options.session.target, "' is not the master '", options.master, "'");
  }
  if (options.scaffold == nullptr) options.scaffold = std::make_shared<Scaffold>();
  SessionOptions session = options.session;
  session.target = options.master;
  MonitoredSessionOptions monitored{.loss = options.loss,
                                    .stop_grace_period_secs = options.stop_grace_period_secs,
                                    .max_wait_secs = options.max_wait_secs,
                                    .wait = options.wait};
  std::unique_ptr<SessionCreator> creator;
  if (options.is_chief) {
    creator = ChiefSessionCreator({.session = session,
                                   .scaffold = options.scaffold,
                                   .checkpoint_dir = options.checkpoint_dir,
                                   .checkpoint_filename_with_path = options.checkpoint_filename_with_path,
                                   .keep_values = options.keep_values,
                                   .max_wait_secs = options.max_wait_secs});
    monitored.hooks.insert(monitored.hooks.end(), options.chief_only_hooks.begin(), options.chief_only_hooks.end());
  } else {
    creator = WorkerSessionCreator({.session = session, .scaffold = options.scaffold, .max_wait_secs = options.max_wait_secs});
  }
  monitored.hooks.insert(monitored.hooks.end(), options.hooks.begin(), options.hooks.end());
  return MonitoredSession::Create(scope, std::move(creator), std::move(monitored));
}

}  // namespace millrace
