#include "millrace/train/session_manager.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/cluster/blamed_task.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/graph/device_name.h"
#include "millrace/train/checkpoint/checkpoint_directory.h"
#include "millrace/train/global_step.h"
#include "millrace/train/progress.h"

namespace millrace {
namespace {

constexpr size_t kNamesShown = 5;
// How long one attempt to create a session waits for tasks. A stop is noticed between two attempts.
constexpr absl::Duration kAttempt = absl::Seconds(20);

// "w, b, c, d, e and 12 more".
std::string ShortList(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > kNamesShown) names.resize(kNamesShown);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      all > kNamesShown ? absl::StrCat(" and ", all - kNamesShown, " more") : "");
}

// The tasks that nodes are placed on. Empty if no node names a task, or if a node may run on any task. The master's own
// task always takes part in a session.
std::vector<std::string> TasksOf(const Graph& graph) {
  std::set<std::string> asked, tasks;
  for (const Node* node : graph.nodes()) asked.insert(node->requested_device());
  for (const pb::FunctionDef& function : graph.library().function()) {
    for (const pb::NodeDef& node : function.node_def()) asked.insert(node.device());
  }
  for (const std::string& device : asked) {
    StatusOr<DeviceName> name = DeviceName::Parse(device);
    if (!name.ok() || !name->job.has_value()) {
      if (name.ok() && !name->task.has_value()) continue;
      return {};
    }
    name->type.reset();
    name->index.reset();
    tasks.insert(name->ToString());
  }
  return {tasks.begin(), tasks.end()};
}

SessionOptions ForThisGraph(SessionOptions session, const Graph& graph) {
  if (!session.target.empty() && session.device_filters.empty() && session.config.device_filters_size() == 0)
    session.device_filters = TasksOf(graph);
  return session;
}

// "/job:worker/replica:0/task:0" for "worker/0"; empty for a name of another form.
std::string TaskOfShortName(absl::string_view name) {
  const size_t slash = name.rfind('/');
  int index;
  if (slash == absl::string_view::npos || slash == 0 || !absl::SimpleAtoi(name.substr(slash + 1), &index)) return "";
  return TaskId{std::string(name.substr(0, slash)), index}.name();
}

}  // namespace

bool IsSessionLost(const Status& status) { return absl::IsUnavailable(status) || absl::IsAborted(status); }

// One attempt to create a session.
class SessionManager::Attempt {
 public:
  Attempt(const SessionManager& manager, NamedWait& wait)
      : manager_(manager), options_(manager.options_), wait_(wait) {}

  // The first call to the server, which creates the session and waits for its tasks.
  Status Open(SessionOptions options) {
    target_ = options.target;
    const absl::Duration limit = std::clamp(wait_.left(), absl::Milliseconds(1), kAttempt);
    // Limits how long the master waits for tasks. Not SessionOptions::operation_timeout, which limits steps.
    if (!options.target.empty()) options.config.set_operation_timeout_in_ms(absl::ToInt64Milliseconds(limit));
    MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(manager_.scope_, options));
    result.session = std::make_unique<ClientSession>(std::move(session));
    if (options_.ready_op.empty()) return absl::OkStatus();
    return result.session->MakeStep({}, {options_.ready_op}).status();
  }

  // The names that a ready op returns; no names if there is no op.
  StatusOr<std::vector<std::string>> Missing(const Output& ready) {
    if (ready.empty()) return std::vector<std::string>();
    MR_ASSIGN_OR_RETURN(const Tensors names, result.session->Run({ready}));
    if (names[0].dtype() != DType::kString)
      return InvalidArgument("the ready op ", ready.name(), " does not return strings");
    const auto flat = names[0].flat<std::string>();
    return std::vector<std::string>(flat.begin(), flat.end());
  }

  // Runs the local initializers once, as soon as they may run; until then returns what is missing.
  StatusOr<std::vector<std::string>> InitializeLocally() {
    if (options_.local_init_op.empty() || local_done_) return std::vector<std::string>();
    MR_ASSIGN_OR_RETURN(std::vector<std::string> missing, Missing(options_.ready_for_local_init_op));
    if (!missing.empty()) return missing;
    MR_RETURN_IF_ERROR(result.session->Run(options_.local_init_feed, {}, {options_.local_init_op}).status());
    local_done_ = true;
    return missing;
  }

  Status ReadStep() {
    const std::optional<Var> step = FindGlobalStep(manager_.scope_);
    if (!step) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(result.step, ReadGlobalStep(result.session.get(), *step));
    return absl::OkStatus();
  }

  // The last steps, once the variables should have their values.
  Status Finish(const std::string& by) {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> missing, InitializeLocally());
    if (!missing.empty()) return FailedPrecondition("after ", by, " there is still no value for ", ShortList(missing));
    MR_ASSIGN_OR_RETURN(missing, Missing(options_.ready_op));
    if (!missing.empty()) return FailedPrecondition("after ", by, " there is still no value for ", ShortList(missing));
    return ReadStep();
  }

  // `given` is shared by all attempts: an earlier one has begun to give values to variables that had none.
  Status GiveValues(const PrepareOptions& prepare, bool may_initialize, bool* given);
  Status AwaitValues();

  PreparedSession result;

 private:
  // The global step of the variables that are about to be overwritten, if all have values.
  StatusOr<std::string> StepToLose() {
    MR_RETURN_IF_ERROR(ReadStep());
    return result.step.value_or(0) == 0
               ? ""
               : absl::StrCat("; the variables were at step ", *std::exchange(result.step, std::nullopt));
  }
  // Not empty if the variables, which have values, are those of the training that saved the checkpoints, and not older.
  StatusOr<std::string> ReasonToKeepValues(const PrepareOptions& prepare);
  StatusOr<std::string> FindCheckpoint(const PrepareOptions& prepare);
  // Restores what FindCheckpoint found, or, if it is damaged, the one before.
  Status Restore(const PrepareOptions& prepare);

  const SessionManager& manager_;
  const SessionManagerOptions& options_;
  NamedWait& wait_;
  std::string target_;
  bool local_done_ = false;
};

StatusOr<std::string> SessionManager::Attempt::ReasonToKeepValues(const PrepareOptions& prepare) {
  if (prepare.saver == nullptr || prepare.checkpoint_dir.empty() || !prepare.checkpoint_filename_with_path.empty())
    return "";
  MR_ASSIGN_OR_RETURN(const std::string newest, LatestCheckpoint(prepare.checkpoint_dir));
  const std::optional<int64_t> saved = StepOfCheckpoint(newest);
  MR_RETURN_IF_ERROR(ReadStep());
  const int64_t step = *std::exchange(result.step, std::nullopt);
  // At step 0 nothing is lost, and the chief may have ended before its init_fn was done.
  if (newest.empty() && prepare.restarted && step > 0)
    return "; there is no checkpoint yet, and this task was restarted (keep_values = false initialises them)";
  if (!saved || step < *saved) return "";
  return absl::StrCat("; the newest checkpoint is ", newest, " (keep_values = false restores it)");
}

StatusOr<std::string> SessionManager::Attempt::FindCheckpoint(const PrepareOptions& prepare) {
  if (prepare.saver == nullptr) return "";
  if (!prepare.checkpoint_filename_with_path.empty()) return prepare.checkpoint_filename_with_path;
  while (!prepare.checkpoint_dir.empty()) {
    MR_ASSIGN_OR_RETURN(std::string found, LatestCheckpoint(prepare.checkpoint_dir));
    if (!found.empty() || !prepare.wait_for_checkpoint) return found;
    MR_RETURN_IF_ERROR(wait_.Again(absl::StrCat("a checkpoint in ", prepare.checkpoint_dir)));
  }
  return "";
}

Status SessionManager::Attempt::Restore(const PrepareOptions& prepare) {
  if (!prepare.checkpoint_filename_with_path.empty())
    return prepare.saver->Restore(result.session.get(), result.restored_from);
  MR_ASSIGN_OR_RETURN(result.restored_from,
                      RestoreNewest(prepare.saver.get(), result.session.get(), prepare.checkpoint_dir));
  if (result.restored_from.empty()) return Aborted("the checkpoints of ", prepare.checkpoint_dir, " have been removed");
  return absl::OkStatus();
}

Status SessionManager::Attempt::GiveValues(const PrepareOptions& prepare, bool may_initialize, bool* given) {
  const auto at_step = [this] { return result.step ? absl::StrCat(" at step ", *result.step) : std::string(); };
  std::vector<std::string> missing;
  const bool can_tell = !options_.ready_op.empty();
  const Output global_ready =
      options_.ready_for_local_init_op.empty() ? options_.ready_op : options_.ready_for_local_init_op;
  if (can_tell) {
    MR_ASSIGN_OR_RETURN(missing, Missing(global_ready));
  }
  const bool have_values = can_tell && missing.empty() && FindGlobalStep(manager_.scope_).has_value();
  // The values that an attempt gave before it was lost count: others may train with them already.
  bool keep = can_tell && missing.empty() && (*given || prepare.keep_values.value_or(false));
  *given |= can_tell && !missing.empty();
  std::string because;
  if (!keep && have_values && !prepare.keep_values.has_value()) {
    MR_ASSIGN_OR_RETURN(because, ReasonToKeepValues(prepare));
    keep = !because.empty();
  }
  if (keep) {
    MR_RETURN_IF_ERROR(Finish("keeping the values of the variables"));
    MR_LOG(Info, "the variables have kept their values: training continues", at_step(), because);
    return absl::OkStatus();
  }
  std::string lost;
  if (have_values) {
    MR_ASSIGN_OR_RETURN(lost, StepToLose());
  }
  MR_ASSIGN_OR_RETURN(result.restored_from, FindCheckpoint(prepare));
  if (!result.restored_from.empty()) {
    ReportProgress({.phase = absl::StrCat("restoring ", result.restored_from)});
    MR_RETURN_IF_ERROR(Restore(prepare));
    MR_RETURN_IF_ERROR(Finish(absl::StrCat("restoring ", result.restored_from)));
    MR_LOG(Info, "restored ", result.restored_from, ": training resumes", at_step(), lost);
    return absl::OkStatus();
  }
  if (!may_initialize) {
    result.initialized = can_tell && missing.empty();
    return result.initialized ? Finish("finding the variables with values") : absl::OkStatus();
  }
  ReportProgress({.phase = "initialising"});
  if (!prepare.init_op.empty())
    MR_RETURN_IF_ERROR(result.session->Run(prepare.init_feed, {}, {prepare.init_op}).status());
  if (prepare.init_fn != nullptr) MR_RETURN_IF_ERROR(prepare.init_fn(result.session.get()));
  const std::string by =
      prepare.init_op.empty() ? "the init_fn" : absl::StrCat("init op '", prepare.init_op.name(), "'");
  MR_RETURN_IF_ERROR(Finish(by));
  if (!prepare.values_follow) MR_LOG(Info, "initialised the variables: training begins", at_step(), lost);
  return absl::OkStatus();
}

Status SessionManager::Attempt::AwaitValues() {
  while (true) {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> missing, InitializeLocally());
    if (missing.empty()) {
      MR_ASSIGN_OR_RETURN(missing, Missing(options_.ready_op));
    }
    if (missing.empty()) return ReadStep();
    const std::string chief = manager_.Chief(target_);
    MR_RETURN_IF_ERROR(
        wait_.Again(absl::StrCat(chief, " (the chief) to initialise ", ShortList(missing)), TaskOfShortName(chief)));
  }
}

StatusOr<PreparedSession> SessionManager::Retry(const SessionOptions& session, absl::Duration max_wait,
                                                const std::function<Status(Attempt&)>& prepare) const {
  MR_RETURN_IF_ERROR(scope_.status());
  NamedWait wait("the session", options_.wait, max_wait, WaitsOfServer(session.target));
  const SessionOptions options = ForThisGraph(session, *scope_.graph());
  while (true) {
    Attempt attempt(*this, wait);
    Status status = attempt.Open(options);
    const bool early = absl::IsDeadlineExceeded(status) && wait.left() > absl::Milliseconds(300);
    if (status.ok()) status = prepare(attempt);
    if (status.ok()) return std::move(attempt.result);
    if (attempt.result.session != nullptr) attempt.result.session->session().Close().IgnoreError();
    if (!IsSessionLost(status) && !early) return status;
    // The text does not mention the attempt's timeout, so that all attempts count as one wait.
    absl::string_view why = status.message();
    if (const size_t at = why.find("no answer from "); early && at != absl::string_view::npos) why.remove_prefix(at);
    MR_RETURN_IF_ERROR(wait.Again(
        absl::StrCat("a session", options.target.empty() ? "" : absl::StrCat(" at ", options.target), ": ", why),
        BlamedTask(status)));
  }
}

StatusOr<PreparedSession> SessionManager::PrepareSession(const PrepareOptions& options) const {
  if (options.init_op.empty() && options.init_fn == nullptr && options.saver == nullptr &&
      options_.local_init_op.empty()) {
    return InvalidArgument(
        "nothing initialises the variables: give an init op, an init_fn, a saver or a local init op");
  }
  bool given = false;
  return Retry(options.session, options.max_wait,
               [&](Attempt& attempt) { return attempt.GiveValues(options, /*may_initialize=*/true, &given); });
}

StatusOr<PreparedSession> SessionManager::RecoverSession(const PrepareOptions& options) const {
  bool given = false;
  return Retry(options.session, options.max_wait,
               [&](Attempt& attempt) { return attempt.GiveValues(options, /*may_initialize=*/false, &given); });
}

StatusOr<PreparedSession> SessionManager::WaitForSession(const SessionOptions& session, absl::Duration max_wait) const {
  return Retry(session, max_wait, [](Attempt& attempt) { return attempt.AwaitValues(); });
}

std::string SessionManager::Chief(const std::string& target) const {
  if (!options_.chief.empty()) return options_.chief;
  if (const std::shared_ptr<const LocalServer> server = FindLocalServer(target)) {
    for (const char* job : {"chief", "master"}) {
      if (server->cluster.jobs().contains(job)) return absl::StrCat(job, "/0");
    }
  }
  return "worker/0";
}

}  // namespace millrace
