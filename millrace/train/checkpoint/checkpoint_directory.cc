#include "millrace/train/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/base/log.h"
#include "millrace/io/bundle.h"

namespace millrace {
namespace {

Status NoneUsable(const std::string& directory, const Status& newest) {
  return DataLoss("no checkpoint of ", directory, " can be used; the newest: ", newest.message());
}

// Takes a damaged checkpoint off the list, so that neither the next start nor an evaluator tries it.
Status Forget(FileSystem* files, const std::string& directory, const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(CheckpointState list, ReadCheckpointState(files, directory));
  std::erase_if(list.all, [&](const CheckpointState::Kept& kept) { return kept.prefix == prefix; });
  list.latest = list.all.empty() ? "" : list.all.back().prefix;
  return WriteCheckpointState(files, directory, list);
}

// "-812", or "" for a prefix that was saved without a step, at the beginning of `rest`; false for anything else.
bool TakeStep(absl::string_view* rest) {
  if (!absl::ConsumePrefix(rest, "-")) return rest->empty() || rest->front() == '.' || rest->front() == '_';
  const size_t digits = std::min(rest->find_first_not_of("0123456789"), rest->size());
  rest->remove_prefix(digits);
  return digits > 0;
}

bool IsTemporary(absl::string_view rest) {
  return absl::StartsWith(rest, "_temp_") || absl::StrContains(rest, ".tempstate") || absl::StrContains(rest, ".tmp");
}

}  // namespace

StatusOr<std::vector<std::string>> UsableCheckpoints(const std::string& directory, const std::string& latest_filename,
                                                     FileSystem* files) {
  std::vector<std::string> usable;
  const StatusOr<CheckpointState> list = ReadCheckpointState(files, directory, latest_filename);
  if (absl::IsNotFound(list.status())) return usable;
  MR_RETURN_IF_ERROR(list.status());
  Status damage;
  for (auto kept = list->all.rbegin(); kept != list->all.rend(); ++kept) {
    Status whole = CheckCheckpoint(files, kept->prefix);
    // A file of TensorFlow's first format is its own index.
    if (absl::IsNotFound(whole) && files->Exists(kept->prefix).ok()) whole = absl::OkStatus();
    if (whole.ok()) {
      usable.push_back(kept->prefix);
      continue;
    }
    // Older ones matter only if none of the newer can be used.
    if (usable.empty()) MR_LOG(Warning, "checkpoint ", kept->prefix, " cannot be used: ", whole.message());
    if (damage.ok() && !absl::IsNotFound(whole)) damage = whole;
  }
  if (usable.empty() && !damage.ok()) return NoneUsable(directory, damage);
  return usable;
}

StatusOr<std::string> LatestCheckpoint(const std::string& directory, const std::string& latest_filename,
                                       FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> usable, UsableCheckpoints(directory, latest_filename, files));
  if (usable.empty()) return "";
  const StatusOr<CheckpointState> list = ReadCheckpointState(files, directory, latest_filename);
  if (list.ok() && !list->all.empty() && list->all.back().prefix != usable.front())
    MR_LOG(Warning, "using the previous checkpoint, ", usable.front());
  return usable.front();
}

StatusOr<std::string> RestoreNewest(Saver* saver, ClientSession* session, const std::string& directory) {
  FileSystem* const files = saver->options().files;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> usable, UsableCheckpoints(directory, "checkpoint", files));
  Status newest;
  for (const std::string& prefix : usable) {
    const Status restored = saver->Restore(session, prefix);
    if (restored.ok()) {
      if (!newest.ok()) MR_LOG(Warning, "using the previous checkpoint, ", prefix);
      return prefix;
    }
    if (!absl::IsDataLoss(restored)) return restored;
    if (newest.ok()) newest = restored;
    MR_LOG(Warning, "checkpoint ", prefix, " is damaged and no longer listed: ", restored.message());
    if (prefix == usable.back()) break;  // the list of a directory without a good checkpoint stays, as evidence
    if (const Status forgotten = Forget(files, directory, prefix); !forgotten.ok())
      MR_LOG(Warning, "cannot take ", prefix, " off the list of checkpoints: ", forgotten.message());
  }
  if (!newest.ok()) return NoneUsable(directory, newest);
  return "";
}

void RemoveLeftovers(const std::string& prefix, FileSystem* files) {
  const std::string directory = DirectoryOf(prefix);
  const std::string base = prefix.substr(prefix.rfind('/') == std::string::npos ? 0 : prefix.rfind('/') + 1);
  const StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok()) return;
  std::set<std::string> indexes;
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, ".index")) indexes.insert(name.substr(0, name.size() - 6));
  }
  std::vector<std::string> removed;
  for (const std::string& name : *names) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, base) || !TakeStep(&rest)) continue;
    const std::string checkpoint = name.substr(0, name.size() - rest.size());
    const bool without_index = (absl::StartsWith(rest, ".data-") || rest == ".meta") && !indexes.contains(checkpoint);
    if (!IsTemporary(rest) && !without_index) continue;
    const std::string path = JoinPath(directory, name);
    const Status gone = files->IsDirectory(path).value_or(false) ? files->RemoveTree(path) : files->Remove(path);
    if (gone.ok()) {
      removed.push_back(name);
    } else {
      MR_LOG(Warning, "cannot remove ", path, ", which a killed save has left: ", gone.message());
    }
  }
  if (!removed.empty())
    MR_LOG(Info, "removed what a killed save has left in ", directory, ": ", absl::StrJoin(removed, ", "));
}

}  // namespace millrace
