// Files confined to some folders.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

// Gives access to what is in one of the roots, wherever links lead, and PERMISSION_DENIED, naming the path and the
// roots, for everything else. Relative paths start in the working directory; a path with ".." is refused as it
// is. Links are resolved as they are when a call is made: who can make links in a root can also race with it.
class RootedFileSystem : public FileSystem {
 public:
  // `base` is the file system of this machine or passes everything on to it, and outlives this. The roots may be
  // links; they are resolved now.
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
  // The path without links, when it is in a root.
  StatusOr<std::string> Resolve(const std::string& path) const;
  // The same, but a link that the path itself ends in stays: what is renamed or removed is the link.
  StatusOr<std::string> ResolveParent(const std::string& path) const;
  Status Check(const std::string& given, const std::string& resolved) const;

  FileSystem* const base_;
  const std::vector<std::string> given_roots_;
  std::vector<std::string> roots_;
};

}  // namespace millrace
