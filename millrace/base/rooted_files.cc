#include "millrace/base/rooted_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace millrace {
namespace {

StatusOr<std::string> WorkingDirectory() {
  char buffer[PATH_MAX];
  if (getcwd(buffer, sizeof(buffer)) == nullptr) return absl::ErrnoToStatus(errno, "there is no working directory");
  return std::string(buffer);
}

// The absolute path with links, dots and repeated slashes resolved. Components that do not exist are kept as they are.
// Unlike realpath, this follows a link whose target does not exist, because that is where a file would be created.
StatusOr<std::string> WithoutLinks(const std::string& path) {
  std::string whole = path;
  if (!absl::StartsWith(path, "/")) {
    MR_ASSIGN_OR_RETURN(const std::string directory, WorkingDirectory());
    whole = absl::StrCat(directory, "/", path);
  }
  std::deque<std::string> left = absl::StrSplit(whole, '/', absl::SkipEmpty());
  std::string resolved;  // "" is the root directory
  constexpr int kMaxLinks = 40;
  int links = 0;
  while (!left.empty()) {
    const std::string name = std::move(left.front());
    left.pop_front();
    if (name == ".") continue;
    if (name == "..") {
      resolved.resize(resolved.rfind('/') == std::string::npos ? 0 : resolved.rfind('/'));
      continue;
    }
    const std::string next = absl::StrCat(resolved, "/", name);
    char target[PATH_MAX];
    const ssize_t size = readlink(next.c_str(), target, sizeof(target));
    if (size < 0) {  // not a link, or does not exist
      resolved = next;
      continue;
    }
    if (++links > kMaxLinks || size == sizeof(target))
      return FailedPrecondition("too many or too long links in ", path);
    const std::deque<std::string> names =
        absl::StrSplit(absl::string_view(target, static_cast<size_t>(size)), '/', absl::SkipEmpty());
    left.insert(left.begin(), names.begin(), names.end());
    if (target[0] == '/') resolved.clear();
  }
  return resolved.empty() ? "/" : resolved;
}

}  // namespace

RootedFileSystem::RootedFileSystem(std::vector<std::string> roots, FileSystem* base)
    : base_(base), given_roots_(std::move(roots)) {
  for (const std::string& root : given_roots_) {
    if (StatusOr<std::string> resolved = WithoutLinks(root); resolved.ok()) roots_.push_back(*std::move(resolved));
  }
}

Status RootedFileSystem::Check(const std::string& given, const std::string& resolved) const {
  for (const std::string& root : roots_) {
    if (resolved == root || root == "/" || absl::StartsWith(resolved, absl::StrCat(root, "/"))) return absl::OkStatus();
  }
  if (given_roots_.empty())
    return absl::PermissionDeniedError(
        absl::StrCat(given, ": graphs may use no files here; --file_root allows a folder"));
  return absl::PermissionDeniedError(
      absl::StrCat(given, resolved == given ? "" : absl::StrCat(" (", resolved, ")"),
                   " is outside of what may be used here: ", absl::StrJoin(given_roots_, ", ")));
}

StatusOr<std::string> RootedFileSystem::Resolve(const std::string& path) const {
  if (path.find('\0') != std::string::npos) return InvalidArgument("a path with a zero byte: ", path);
  for (const absl::string_view name : absl::StrSplit(path, '/')) {
    if (name != "..") continue;
    return absl::PermissionDeniedError(absl::StrCat(path, " has '..', which is not allowed here; what may be used is ",
                                                    absl::StrJoin(given_roots_, ", ")));
  }
  MR_ASSIGN_OR_RETURN(std::string resolved, WithoutLinks(path));
  MR_RETURN_IF_ERROR(Check(path, resolved));
  return resolved;
}

StatusOr<std::string> RootedFileSystem::ResolveParent(const std::string& path) const {
  absl::string_view trimmed = path;
  while (trimmed.size() > 1 && absl::EndsWith(trimmed, "/")) trimmed.remove_suffix(1);
  const size_t slash = trimmed.rfind('/');
  const absl::string_view name = slash == absl::string_view::npos ? trimmed : trimmed.substr(slash + 1);
  if (name.empty() || name == "." || name == "..") return Resolve(path);  // a directory, not a link
  MR_ASSIGN_OR_RETURN(const std::string parent, Resolve(DirectoryOf(trimmed)));
  return JoinPath(parent, name);
}

StatusOr<std::unique_ptr<SequentialFile>> RootedFileSystem::OpenSequential(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->OpenSequential(resolved);
}

StatusOr<std::unique_ptr<RandomAccessFile>> RootedFileSystem::OpenRandomAccess(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->OpenRandomAccess(resolved);
}

StatusOr<std::unique_ptr<WritableFile>> RootedFileSystem::OpenWritable(const std::string& path, Mode mode) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->OpenWritable(resolved, mode);
}

StatusOr<uint64_t> RootedFileSystem::FileSize(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->FileSize(resolved);
}

Status RootedFileSystem::Exists(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->Exists(resolved);
}

StatusOr<bool> RootedFileSystem::IsDirectory(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  return base_->IsDirectory(resolved);
}

Status RootedFileSystem::SyncDirectory(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(directory));
  return base_->SyncDirectory(resolved);
}

Status RootedFileSystem::Rename(const std::string& from, const std::string& to) {
  MR_ASSIGN_OR_RETURN(const std::string resolved_from, ResolveParent(from));
  MR_ASSIGN_OR_RETURN(const std::string resolved_to, ResolveParent(to));
  return base_->Rename(resolved_from, resolved_to);
}

StatusOr<std::vector<std::string>> RootedFileSystem::List(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(directory));
  return base_->List(resolved);
}

Status RootedFileSystem::MakeDirectories(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, Resolve(directory));
  return base_->MakeDirectories(resolved);
}

Status RootedFileSystem::Remove(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, ResolveParent(path));
  return base_->Remove(resolved);
}

Status RootedFileSystem::RemoveTree(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::string resolved, ResolveParent(directory));
  return base_->RemoveTree(resolved);
}

StatusOr<std::string> RootedFileSystem::MakeTempDirectory(absl::string_view prefix) {
  MR_ASSIGN_OR_RETURN(std::string path, base_->MakeTempDirectory(prefix));
  const Status status = Resolve(path).status();
  if (status.ok()) return path;
  base_->Remove(path).IgnoreError();
  return status;
}

}  // namespace millrace
