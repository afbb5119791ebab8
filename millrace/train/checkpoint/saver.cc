#include "millrace/train/checkpoint/saver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/io/bundle.h"
#include "millrace/train/checkpoint/meta_graph.h"
#include "millrace/train/checkpoint/saver_nodes.h"

namespace millrace {

using train_internal::SavedVariable;
using Kept = CheckpointState::Kept;

struct Saver::State {
  State(const Scope& scope, SaverOptions given) : scope(scope.WithoutOpName()), options(std::move(given)) {}

  // The checkpoints that are kept, with the times of their saves.
  struct List {
    std::vector<Kept> kept;
    absl::Time next_preserved = absl::InfiniteFuture();
    absl::Time last_preserved = absl::InfinitePast();
  };
  // The list with a new checkpoint appended; `old` receives those that dropped out of it.
  List Added(const std::string& prefix, std::vector<std::string>* old);

  const Scope scope;
  const SaverOptions options;
  std::vector<SavedVariable> variables;
  train_internal::SaverNodes nodes;

  Mutex mu;
  List list ABSL_GUARDED_BY(mu);
  // The graph as it was last written, cached because it seldom changes.
  std::string meta_graph ABSL_GUARDED_BY(mu);
  int meta_graph_nodes ABSL_GUARDED_BY(mu) = -1;
};

Saver::Saver(const Scope& scope, SaverOptions options) : state_(std::make_unique<State>(scope, std::move(options))) {
  if (!scope.ok()) return;
  const SaverOptions& wanted = state_->options;
  {
    MutexLock lock(&state_->mu);
    state_->list.next_preserved = wanted.wall_clock->Now() + wanted.keep_checkpoint_every;
  }
  const bool all = wanted.variables.empty() && wanted.names.empty();
  StatusOr<std::vector<SavedVariable>> saved =
      train_internal::SavedVariables(all ? GlobalVariables(scope) : wanted.variables, wanted.names);
  if (!saved.ok()) {
    scope.UpdateStatus(WithPrefix(absl::StrCat("saver ", wanted.name, ": "), saved.status()));
    return;
  }
  state_->variables = *std::move(saved);
  if (!state_->variables.empty())
    state_->nodes = train_internal::AddSaverNodes(state_->scope, wanted.name, state_->variables, wanted.sharded);
}

Saver::Saver(std::unique_ptr<State> state) : state_(std::move(state)) {}

StatusOr<std::unique_ptr<Saver>> Saver::FromDef(const Scope& scope, const ::tensorflow::SaverDef& def,
                                                SaverOptions options) {
  MR_RETURN_IF_ERROR(scope.status());
  options.sharded = def.sharded();
  auto state = std::make_unique<State>(scope, std::move(options));
  {
    MutexLock lock(&state->mu);
    state->list.next_preserved = state->options.wall_clock->Now() + state->options.keep_checkpoint_every;
  }
  const auto find = [&](const std::string& name) -> StatusOr<Output> {
    const StatusOr<Endpoint> found = scope.graph()->FindEndpoint(name);
    if (found.ok() && !name.empty()) return Output(state->scope, *found);
    return InvalidArgument("the saver names '", name, "', which is not in the graph");
  };
  MR_ASSIGN_OR_RETURN(state->nodes.filename, find(def.filename_tensor_name()));
  MR_ASSIGN_OR_RETURN(state->nodes.saved, find(def.save_tensor_name()));
  Node* const restore = scope.graph()->FindNode(def.restore_op_name());
  if (restore == nullptr)
    return InvalidArgument("the saver names the op '", def.restore_op_name(), "', which is not in the graph");
  state->nodes.restore = Operation(state->scope, restore);
  return std::unique_ptr<Saver>(new Saver(std::move(state)));
}

Saver::~Saver() = default;

const SaverOptions& Saver::options() const { return state_->options; }

::tensorflow::SaverDef Saver::saver_def() const {
  ::tensorflow::SaverDef def;
  def.set_filename_tensor_name(state_->nodes.filename.name());
  def.set_save_tensor_name(state_->nodes.saved.name());
  def.set_restore_op_name(state_->nodes.restore.name());
  def.set_max_to_keep(state_->options.max_to_keep);
  def.set_sharded(state_->options.sharded);
  // TensorFlow's "never".
  const double hours = std::min(absl::ToDoubleHours(state_->options.keep_checkpoint_every), 10000.0);
  def.set_keep_checkpoint_every_n_hours(static_cast<float>(hours));
  def.set_version(::tensorflow::SaverDef::V2);
  return def;
}

StatusOr<::tensorflow::MetaGraphDef> Saver::MetaGraph() const {
  return train_internal::MakeMetaGraph(state_->scope, saver_def());
}

Saver::State::List Saver::State::Added(const std::string& prefix, std::vector<std::string>* old) {
  List next;
  {
    MutexLock lock(&mu);
    next = list;
  }
  std::erase_if(next.kept, [&](const Kept& kept) { return kept.prefix == prefix; });
  next.kept.push_back({prefix, options.wall_clock->Now()});
  while (options.max_to_keep > 0 && next.kept.size() > static_cast<size_t>(options.max_to_keep)) {
    const Kept oldest = next.kept.front();
    next.kept.erase(next.kept.begin());
    if (oldest.time > next.next_preserved) {
      next.last_preserved = oldest.time;
      next.next_preserved += options.keep_checkpoint_every;
    } else {
      old->push_back(oldest.prefix);
    }
  }
  return next;
}

StatusOr<std::string> Saver::PathFor(const std::string& prefix, const SaveOptions& options) const {
  MR_RETURN_IF_ERROR(state_->scope.status());
  if (state_->nodes.restore.empty()) return FailedPrecondition("the graph has no variables to save as ", prefix);
  if (prefix.empty() || prefix.back() == '/')
    return InvalidArgument("'", prefix, "' is not a checkpoint prefix: use DIR/NAME, as in train/model.ckpt");
  if (options.latest_filename.find('/') != std::string::npos) {
    return InvalidArgument("latest_filename is '", options.latest_filename,
                           "'; it must be the name of a file in the directory of the checkpoints, not a path");
  }
  std::string path = options.global_step ? absl::StrCat(prefix, "-", *options.global_step) : prefix;
  MR_RETURN_IF_ERROR(state_->options.files->MakeDirectories(DirectoryOf(path)));
  return path;
}

StatusOr<std::string> Saver::Save(ClientSession* session, const std::string& prefix, const SaveOptions& options) {
  MR_ASSIGN_OR_RETURN(const std::string path, PathFor(prefix, options));
  return Keep(path, session->Run({{state_->nodes.filename, Tensor::Scalar(path)}}, {state_->nodes.saved}).status(),
              options);
}

StatusOr<Saver::FinishSave> Saver::BeginSave(ClientSession* session, const std::string& prefix,
                                             const SaveOptions& options) {
  if (!state_->nodes.restore.empty() && state_->nodes.read.empty()) {
    // An imported saver: its nodes read and write in one.
    MR_ASSIGN_OR_RETURN(std::string path, Save(session, prefix, options));
    return FinishSave([path = std::move(path)]() -> StatusOr<std::string> { return path; });
  }
  MR_ASSIGN_OR_RETURN(const std::string path, PathFor(prefix, options));
  const std::string feed = state_->nodes.filename.name(), read = state_->nodes.read.name(),
                    saved = state_->nodes.saved.name();
  MR_RETURN_IF_ERROR(session->Prepare());
  Session* const raw = &session->session();
  MR_ASSIGN_OR_RETURN(std::string step, raw->PartialRunSetup({&feed, 1}, std::vector<std::string>{read, saved}, {}));
  std::vector<Tensor> results;
  const Feed given = {feed, Tensor::Scalar(path)};
  if (const Status begun = raw->PartialRun(step, {&given, 1}, {&read, 1}, &results); !begun.ok())
    return Keep(path, begun, options).status();
  return FinishSave([this, raw, path, options, saved, step = std::move(step)]() -> StatusOr<std::string> {
    std::vector<Tensor> results;
    return Keep(path, raw->PartialRun(step, {}, {&saved, 1}, &results), options);
  });
}

StatusOr<std::string> Saver::Keep(const std::string& path, const Status& saved, const SaveOptions& options) {
  State& state = *state_;
  FileSystem* const files = state.options.files;
  const std::string directory = DirectoryOf(path);
  if (!saved.ok()) {
    // Removes what the tasks wrote. Tasks that are still writing hold their files open and stop when the step ends.
    if (!state.nodes.temporary.empty()) files->RemoveTree(path + state.nodes.temporary).IgnoreError();
    return WithPrefix(absl::StrCat("cannot save ", path, ": "), saved);
  }
  if (options.write_meta_graph) {
    std::string bytes;
    {
      MutexLock lock(&state.mu);
      if (state.meta_graph_nodes == state.scope.graph()->max_id()) bytes = state.meta_graph;
    }
    if (bytes.empty()) {
      MR_ASSIGN_OR_RETURN(const ::tensorflow::MetaGraphDef meta, MetaGraph());
      bytes = meta.SerializeAsString();
      MutexLock lock(&state.mu);
      state.meta_graph = bytes;
      state.meta_graph_nodes = state.scope.graph()->max_id();
    }
    MR_RETURN_IF_ERROR(ReplaceFile(files, path + ".meta", bytes));
  }
  if (!options.write_state) return path;
  std::vector<std::string> old;
  State::List next = state.Added(path, &old);
  const CheckpointState list = {.latest = path, .all = next.kept, .last_preserved = next.last_preserved};
  MR_RETURN_IF_ERROR(WriteCheckpointState(files, directory, list, options.latest_filename));
  {
    MutexLock lock(&state.mu);
    state.list = std::move(next);
  }
  // Must come last: the list on disk no longer names them.
  for (const std::string& gone : old) {
    if (const Status removed = RemoveCheckpoint(gone, files); !removed.ok()) {
      MR_LOG(Warning, "cannot remove the old checkpoint ", gone, ": ", removed.message());
    }
  }
  return path;
}

namespace {

// Checks what the program can check itself, so that errors name the variables and not a node of the graph.
Status CheckFits(const std::vector<SavedVariable>& variables, const std::string& prefix, FileSystem* files) {
  const StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(files, prefix);
  // The checkpoint has TensorFlow's first format or is visible only to the tasks; they will report errors.
  if (absl::IsNotFound(reader.status())) return absl::OkStatus();
  MR_RETURN_IF_ERROR(reader.status());
  std::vector<std::string> missing;
  for (const SavedVariable& saved : variables) {
    const std::string is =
        absl::StrCat("variable ", saved.variable.var_name(),
                     saved.name == saved.variable.var_name() ? "" : absl::StrCat(" (", saved.name, " there)"));
    StatusOr<BundleTensor> found;
    if (saved.slice.empty()) {
      found = (*reader)->Find(saved.name);
    } else {
      MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(saved.slice));
      found = (*reader)->FindSlice(saved.name, part);
    }
    if (absl::IsNotFound(found.status())) {
      missing.push_back(is);
      continue;
    }
    if (!found.ok()) return WithPrefix(absl::StrCat(is, ": "), found.status());
    if (found->dtype != saved.variable.dtype()) {
      return InvalidArgument(is, " has type ", saved.variable.dtype(), ", but in checkpoint ", prefix, " it has type ",
                             found->dtype);
    }
    if (!saved.variable.shape().IsCompatibleWith(found->shape)) {
      return InvalidArgument(is, " has shape ", saved.variable.shape().ToString(), ", but in checkpoint ", prefix,
                             " it has shape ", found->shape.ToString());
    }
  }
  if (!missing.empty()) return NotFound("checkpoint ", prefix, " lacks ", absl::StrJoin(missing, ", "));
  return absl::OkStatus();
}

}  // namespace

Status Saver::Restore(ClientSession* session, const std::string& prefix) {
  const State& state = *state_;
  MR_RETURN_IF_ERROR(state.scope.status());
  if (state.nodes.restore.empty()) return FailedPrecondition("the graph has no variables to restore from ", prefix);
  MR_RETURN_IF_ERROR(CheckFits(state.variables, prefix, state.options.files));
  return WithPrefix(absl::StrCat("cannot restore ", prefix, ": "),
                    session->Run({{state.nodes.filename, Tensor::Scalar(prefix)}}, {}, {state.nodes.restore}).status());
}

std::vector<std::string> Saver::last_checkpoints() const {
  MutexLock lock(&state_->mu);
  std::vector<std::string> prefixes;
  for (const Kept& kept : state_->list.kept) prefixes.push_back(kept.prefix);
  return prefixes;
}

Status Saver::RecoverLastCheckpoints(const std::string& directory, const std::string& latest_filename) {
  const StatusOr<CheckpointState> list = ReadCheckpointState(state_->options.files, directory, latest_filename);
  if (absl::IsNotFound(list.status())) return absl::OkStatus();
  MR_RETURN_IF_ERROR(list.status());
  const absl::Time now = state_->options.wall_clock->Now();
  std::vector<Kept> there;
  for (const Kept& kept : list->all) {
    if (!state_->options.files->Exists(BundleIndexPath(kept.prefix)).ok()) continue;
    there.push_back({kept.prefix, kept.time == absl::InfinitePast() ? now : kept.time});
  }
  MutexLock lock(&state_->mu);
  State::List& mine = state_->list;
  mine.kept = std::move(there);
  const absl::Duration every = state_->options.keep_checkpoint_every;
  if (list->last_preserved != absl::InfinitePast()) {
    // A time ahead of ours was written while the machine's time of day was wrong.
    mine.last_preserved = std::min(list->last_preserved, now);
    mine.next_preserved = mine.last_preserved + every;
  } else if (!mine.kept.empty()) {
    mine.next_preserved = mine.kept.front().time + every;
  }
  return absl::OkStatus();
}

std::optional<int64_t> StepOfCheckpoint(absl::string_view prefix) {
  const size_t dash = prefix.rfind('-');
  int64_t step = 0;
  if (dash == absl::string_view::npos || dash + 1 == prefix.size() ||
      prefix.find_first_not_of("0123456789", dash + 1) != absl::string_view::npos ||
      !absl::SimpleAtoi(prefix.substr(dash + 1), &step)) {
    return std::nullopt;
  }
  return step;
}

Status RemoveCheckpoint(const std::string& prefix, FileSystem* files) {
  const std::string directory = DirectoryOf(prefix);
  const std::string base = prefix.substr(prefix.rfind('/') == std::string::npos ? 0 : prefix.rfind('/') + 1);
  const StatusOr<std::vector<std::string>> names = files->List(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  MR_RETURN_IF_ERROR(names.status());
  std::vector<std::string> gone;
  for (const std::string& name : *names) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, base)) continue;
    int shard = 0, shards = 0;
    const bool is_data = rest.size() == 20 && absl::ConsumePrefix(&rest, ".data-") &&
                         absl::SimpleAtoi(rest.substr(0, 5), &shard) && rest.substr(5, 4) == "-of-" &&
                         absl::SimpleAtoi(rest.substr(9), &shards);
    if (rest == ".index") {
      gone.insert(gone.begin(), name);
    } else if (is_data || rest == ".meta") {
      gone.push_back(name);
    }
  }
  for (const std::string& name : gone) {
    const Status removed = files->Remove(JoinPath(directory, name));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

}  // namespace millrace
