// A file system confined to a set of root directories.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

// Allows access to paths inside one of the roots after resolving symbolic links, and returns PERMISSION_DENIED, naming
// the path and the roots, for everything else. Relative paths start at the working directory; a path that contains ".."
// is rejected unresolved. Links are resolved at the time of each call, so a process that can create links inside a root
// can race with the check.
class RootedFileSystem : public FileSystem {
 public:
  // Without roots every access is denied. `base` is the local file system or a wrapper that forwards to it, and must
  // outlive this object. The roots may be symbolic links; they are resolved here, once.
  explicit RootedFileSystem(std::vector<std::string> roots, FileSystem* base = FileSystem::Posix());

  StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) override;
  StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) override;
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override;
  StatusOr<uint64_t> FileSize(const std::string& path) override;
  Status Exists(const std::string& path) override;
  StatusOr<bool> IsDirectory(const std::string& path) override;
  Status SyncDirectory(const std::string& directory) override;
  Status Rename(const std::string& from, const std::string& to) override;
  StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  Status MakeDirectories(const std::string& directory) override;
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& directory) override;
  StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) override;

 private:
  // The path with all links resolved; an error if it is outside the roots.
  StatusOr<std::string> Resolve(const std::string& path) const;
  // The same without resolving the last component: rename and remove act on the link itself.
  StatusOr<std::string> ResolveParent(const std::string& path) const;
  Status Check(const std::string& given, const std::string& resolved) const;

  FileSystem* const base_;
  const std::vector<std::string> given_roots_;
  std::vector<std::string> roots_;
};

}  // namespace millrace
