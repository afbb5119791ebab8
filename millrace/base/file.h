// Files, through one seam: a fault is injected by overriding one method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// Read from the beginning to the end. One thread at a time.
class SequentialFile {
 public:
  virtual ~SequentialFile() = default;
  // Reads up to `n` bytes into `buffer` and says how many; fewer than `n` only at the end.
  virtual StatusOr<size_t> Read(size_t n, char* buffer) = 0;
};

// Read anywhere. Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads up to `n` bytes at `offset` into `buffer` and says how many; fewer than `n` only at the end.
  virtual StatusOr<size_t> Read(uint64_t offset, size_t n, char* buffer) const = 0;
  // A hint that these bytes will be read soon: the disk may begin.
  virtual void WillRead(uint64_t offset, size_t n) const {}
};

// Written from the beginning, or from the end of what is there. One thread at a time. What was
// appended is in the file after Flush, and on the disk after Sync. The destructor closes; only Close says
// whether that worked.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(absl::string_view data) = 0;
  virtual Status Flush() = 0;
  // Flushes, and asks that what was appended so far go to the disk soon, without waiting for it: a long file
  // is then nearly there when Sync is called.
  virtual Status StartSync() { return Flush(); }
  // A hint for what is appended from now on: past the system's cache to the disk, where the file system can. That takes longer, costs a small part of the
  // processor's time that the cache does, and leaves the cache to others. Off at first.
  virtual Status SetPastCache(bool on) { return absl::OkStatus(); }
  virtual Status Sync() = 0;
  // Flushes too. Nothing may follow.
  virtual Status Close() = 0;
};

// Thread-safe. Every error names the path; NOT_FOUND, PERMISSION_DENIED and ALREADY_EXISTS mean what they say.
class FileSystem {
 public:
  enum class Mode { kTruncate, kAppend };

  virtual ~FileSystem() = default;
  virtual StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path,
                                                               Mode mode = Mode::kTruncate) = 0;
  virtual StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  // NOT_FOUND when there is nothing; other errors when that cannot be known.
  virtual Status Exists(const std::string& path) = 0;
  // NOT_FOUND when there is nothing.
  virtual StatusOr<bool> IsDirectory(const std::string& path) = 0;
  // After this a crash forgets no name that was made, renamed or removed in the directory.
  virtual Status SyncDirectory(const std::string& directory) = 0;
  // Replaces what is at `to`, at once: a reader sees the old or the new file.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // The names in a directory, sorted, without "." and "..".
  virtual StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  // With parents; no error when it is there.
  virtual Status MakeDirectories(const std::string& directory) = 0;
  // A file or an empty directory.
  virtual Status Remove(const std::string& path) = 0;
  // A directory and everything in it; links are removed, not followed.
  virtual Status RemoveTree(const std::string& directory) = 0;
  // A new directory of that prefix where the system keeps temporary files.
  virtual StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) = 0;

  // This machine's; never null, lives for ever.
  static FileSystem* Posix();
};

StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path);
// Writes beside `path`, syncs and renames: after a crash there is the old content or the new.
Status ReplaceFile(FileSystem* files, const std::string& path, absl::string_view content);

// "a/b" from "a" and "b"; an absolute `name` stays.
std::string JoinPath(absl::string_view directory, absl::string_view name);
// "a" of "a/b", "." of "b".
std::string DirectoryOf(absl::string_view path);

// A temporary directory that goes with this object.
class TempDirectory {
 public:
  static StatusOr<TempDirectory> Make(absl::string_view prefix, FileSystem* files = FileSystem::Posix());
  TempDirectory(TempDirectory&& other) noexcept;
  TempDirectory& operator=(TempDirectory&&) = delete;
  ~TempDirectory();

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return JoinPath(path_, name); }

 private:
  TempDirectory(FileSystem* files, std::string path) : files_(files), path_(std::move(path)) {}
  FileSystem* files_;
  std::string path_;
};

}  // namespace millrace
