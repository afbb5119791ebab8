// A read-only in-memory file system for tests and fuzzers of readers.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

class MemoryFiles : public FileSystem {
 public:
  // Contents by path. Must not change while a file is open.
  std::map<std::string, std::string> files;

  StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const absl::string_view bytes, Find(path));
    return std::make_unique<File>(bytes);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const absl::string_view bytes, Find(path));
    return std::make_unique<File>(bytes);
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string&, Mode) override { return ReadOnly(); }
  StatusOr<uint64_t> FileSize(const std::string& path) override {
    MR_ASSIGN_OR_RETURN(const absl::string_view bytes, Find(path));
    return bytes.size();
  }
  Status Exists(const std::string& path) override { return Find(path).status(); }
  StatusOr<bool> IsDirectory(const std::string& path) override {
    MR_RETURN_IF_ERROR(Exists(path));
    return false;
  }
  Status SyncDirectory(const std::string&) override { return ReadOnly(); }
  Status Rename(const std::string&, const std::string&) override { return ReadOnly(); }
  StatusOr<std::vector<std::string>> List(const std::string&) override { return ReadOnly(); }
  Status MakeDirectories(const std::string&) override { return ReadOnly(); }
  Status Remove(const std::string&) override { return ReadOnly(); }
  Status RemoveTree(const std::string&) override { return ReadOnly(); }
  StatusOr<std::string> MakeTempDirectory(absl::string_view) override { return ReadOnly(); }

 private:
  class File : public SequentialFile, public RandomAccessFile {
   public:
    explicit File(absl::string_view bytes) : bytes_(bytes) {}
    StatusOr<size_t> Read(size_t n, char* buffer) override {
      MR_ASSIGN_OR_RETURN(const size_t got, Read(at_, n, buffer));
      at_ += got;
      return got;
    }
    StatusOr<size_t> Read(uint64_t offset, size_t n, char* buffer) const override {
      const absl::string_view found = bytes_.substr(std::min<uint64_t>(offset, bytes_.size()), n);
      if (!found.empty()) std::memcpy(buffer, found.data(), found.size());
      return found.size();
    }

   private:
    const absl::string_view bytes_;
    uint64_t at_ = 0;
  };

  static Status ReadOnly() { return absl::PermissionDeniedError("these files are only read"); }
  StatusOr<absl::string_view> Find(const std::string& path) const {
    const auto at = files.find(path);
    if (at == files.end()) return NotFound("there is no ", path);
    return absl::string_view(at->second);
  }
};

}  // namespace millrace
