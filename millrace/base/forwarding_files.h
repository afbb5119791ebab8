// A file system that forwards every call: the base class of wrappers that override some of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

class ForwardingFileSystem : public FileSystem {
 public:
  // `base` is not owned and must outlive this object.
  explicit ForwardingFileSystem(FileSystem* base) : base_(base) {}

  StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) override {
    return base_->OpenSequential(path);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) override {
    return base_->OpenRandomAccess(path);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
    return base_->OpenWritable(path, mode);
  }
  StatusOr<uint64_t> FileSize(const std::string& path) override { return base_->FileSize(path); }
  Status Exists(const std::string& path) override { return base_->Exists(path); }
  StatusOr<bool> IsDirectory(const std::string& path) override { return base_->IsDirectory(path); }
  Status SyncDirectory(const std::string& directory) override { return base_->SyncDirectory(directory); }
  Status Rename(const std::string& from, const std::string& to) override { return base_->Rename(from, to); }
  StatusOr<std::vector<std::string>> List(const std::string& directory) override { return base_->List(directory); }
  Status MakeDirectories(const std::string& directory) override { return base_->MakeDirectories(directory); }
  Status Remove(const std::string& path) override { return base_->Remove(path); }
  Status RemoveTree(const std::string& directory) override { return base_->RemoveTree(directory); }
  StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) override {
    return base_->MakeTempDirectory(prefix);
  }

 protected:
  FileSystem* base() const { return base_; }

 private:
  FileSystem* const base_;
};

}  // namespace millrace
