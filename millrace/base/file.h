// File access behind one interface, so that a test injects a fault by overriding one method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// A file that is read from beginning to end. Not thread-safe.
class SequentialFile {
 public:
  virtual ~SequentialFile() = default;
  // Reads up to `n` bytes into `buffer` and returns how many it read; fewer than `n` only at the end of the file.
  virtual StatusOr<size_t> Read(size_t n, char* buffer) = 0;
};

// A file that is read at any offset. Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads up to `n` bytes at `offset` into `buffer` and returns how many it read; fewer than `n` only at the end of the
  // file.
  virtual StatusOr<size_t> Read(uint64_t offset, size_t n, char* buffer) const = 0;
  // A prefetch hint: these bytes will be read soon.
  virtual void WillRead(uint64_t offset, size_t n) const {}
};

// A file that is overwritten or appended to. Not thread-safe. Appended data is visible to readers of the file after
// Flush, and durable after Sync. The destructor closes the file but only Close reports errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(absl::string_view data) = 0;
  virtual Status Flush() = 0;
  // Flushes and starts writeback of what was appended so far without waiting for it, so that a later Sync of a long
  // file has little left to do.
  virtual Status StartSync() { return Flush(); }
  // A hint to bypass the page cache (O_DIRECT) for data appended from now on, where the file system supports it. Writes
  // take longer, but use a small part of the CPU time and do not evict other data from the cache. Off by default.
  virtual Status SetPastCache(bool on) { return absl::OkStatus(); }
  virtual Status Sync() = 0;
  // Flushes, then closes. No other call may follow.
  virtual Status Close() = 0;
};

// Thread-safe. Every error names the path; NOT_FOUND, PERMISSION_DENIED and ALREADY_EXISTS are distinguished from other
// errors.
class FileSystem {
 public:
  enum class Mode { kTruncate, kAppend };

  virtual ~FileSystem() = default;
  virtual StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path,
                                                               Mode mode = Mode::kTruncate) = 0;
  virtual StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  // OK if the path exists, NOT_FOUND if it does not, another error if that cannot be determined.
  virtual Status Exists(const std::string& path) = 0;
  // NOT_FOUND if the path does not exist.
  virtual StatusOr<bool> IsDirectory(const std::string& path) = 0;
  // Makes earlier creations, renames and removals of names in the directory durable.
  virtual Status SyncDirectory(const std::string& directory) = 0;
  // Replaces `to` atomically: a reader sees either the old or the new file.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // The names in a directory, sorted, without "." and "..".
  virtual StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  // Creates parents as needed; OK if the directory exists.
  virtual Status MakeDirectories(const std::string& directory) = 0;
  // Removes a file or an empty directory.
  virtual Status Remove(const std::string& path) = 0;
  // Removes a directory and everything in it; symbolic links are removed, not followed.
  virtual Status RemoveTree(const std::string& directory) = 0;
  // Creates a uniquely named directory with this prefix in the system's temporary directory.
  virtual StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) = 0;

  // The local file system; never null, never destroyed.
  static FileSystem* Posix();
};

StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path);
// Replaces the file atomically and durably (write to a temporary file, sync, rename): after a crash it has either the
// old or the new content.
Status ReplaceFile(FileSystem* files, const std::string& path, absl::string_view content);

// "a/b" from "a" and "b"; an absolute `name` is returned unchanged.
std::string JoinPath(absl::string_view directory, absl::string_view name);
// "a" for "a/b", "." for "b".
std::string DirectoryOf(absl::string_view path);

// A temporary directory that the destructor removes with its contents.
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
