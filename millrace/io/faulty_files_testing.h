// A file system for tests that fails at a chosen change, or whose disk is full.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "millrace/base/forwarding_files.h"

namespace millrace {

class FaultyFiles : public ForwardingFileSystem {
 public:
  FaultyFiles() : ForwardingFileSystem(FileSystem::Posix()) {}

  // Simulates a crash: change number `n` (from 0) and all later ones are not made.
  void CrashAtChange(int64_t n) { changes_left_ = n; }
  // Writes fail with RESOURCE_EXHAUSTED after this many bytes; removing files still works.
  void SetRoom(int64_t bytes) { room_ = bytes; }
  bool crashed() const { return changes_left_ < 0; }

  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
    MR_RETURN_IF_ERROR(Change());
    MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base()->OpenWritable(path, mode));
    return std::make_unique<File>(this, std::move(file));
  }
  Status Rename(const std::string& from, const std::string& to) override {
    MR_RETURN_IF_ERROR(Change());
    return base()->Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    MR_RETURN_IF_ERROR(Change());
    return base()->Remove(path);
  }
  Status MakeDirectories(const std::string& directory) override {
    MR_RETURN_IF_ERROR(Change());
    return base()->MakeDirectories(directory);
  }
  Status SyncDirectory(const std::string& directory) override {
    MR_RETURN_IF_ERROR(Change());
    return base()->SyncDirectory(directory);
  }

 private:
  class File : public WritableFile {
   public:
    File(FaultyFiles* files, std::unique_ptr<WritableFile> file) : files_(files), file_(std::move(file)) {}
    Status Append(absl::string_view data) override {
      MR_RETURN_IF_ERROR(files_->Change());
      files_->room_ -= static_cast<int64_t>(data.size());
      if (files_->room_ < 0) return ResourceExhausted("no space left on device");
      return file_->Append(data);
    }
    Status Flush() override { return file_->Flush(); }
    Status Sync() override {
      MR_RETURN_IF_ERROR(files_->Change());
      return file_->Sync();
    }
    Status Close() override { return file_->Close(); }

   private:
    FaultyFiles* const files_;
    std::unique_ptr<WritableFile> file_;
  };

  Status Change() { return --changes_left_ < 0 ? Unavailable("crashed") : absl::OkStatus(); }

  int64_t changes_left_ = std::numeric_limits<int64_t>::max();
  int64_t room_ = std::numeric_limits<int64_t>::max();
};

}  // namespace millrace
