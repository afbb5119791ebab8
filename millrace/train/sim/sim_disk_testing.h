// A disk that all tasks of a simulated cluster share, with faults. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/forwarding_files.h"

namespace millrace {

// Keeps its files in a temporary directory. Remembers what has been synced, so that a loss of power loses the rest:
// the ends of files, and the latest renames. Used by one thread at a time.
class SimDisk {
 public:
  explicit SimDisk(uint64_t seed) : random_(seed), directory_(TempDirectory::Make("sim_disk").value()) {}

  std::string path() const { return directory_.path(); }
  // What a host sees. Lives as long as the disk.
  FileSystem* Of(const std::string& host) {
    auto& view = views_[host];
    if (view == nullptr) view = std::make_unique<View>(this);
    return view.get();
  }

  // Change number `n` (from 0) that the host makes from now on is not made, and `then` is called, once; nor are later
  // ones until Repair: it died in the middle of writing.
  void BreakAt(const std::string& host, int64_t n, std::function<void()> then = nullptr) {
    Of(host);
    views_[host]->left = n;
    views_[host]->then = std::move(then);
  }
  void Repair(const std::string& host) {
    if (const auto it = views_.find(host); it != views_.end()) {
      it->second->left = std::numeric_limits<int64_t>::max();
      it->second->then = nullptr;
    }
  }
  // Writes fail while the disk is full.
  void SetFull(bool full) { full_ = full; }
  // From now on a sync returns without having written anything.
  void SetLies(bool lies) { lies_ = lies; }

  // As rm -r.
  void RemoveAll() {
    const StatusOr<std::vector<std::string>> names = files_->List(path());
    MR_CHECK(names.ok());
    for (const std::string& name : *names) {
      const std::string file = JoinPath(path(), name);
      Forget(file);
      const bool folder = files_->IsDirectory(file).value_or(false);
      MR_CHECK((folder ? files_->RemoveTree(file) : files_->Remove(file)).ok());
    }
  }

  // Everything that was not synced may be gone, as the seed decides.
  void LosePower() {
    const size_t undone = renames_.empty() ? 0 : random_() % (renames_.size() + 1);
    for (size_t i = 0; i < undone; ++i) {
      const Renamed& last = renames_.back();
      MR_CHECK(files_->Rename(last.to, last.from).ok());
      if (auto node = synced_.extract(last.to)) {
        node.key() = last.from;
        synced_.insert(std::move(node));
      }
      if (last.before) Write(last.to, *last.before);
      renames_.pop_back();
    }
    renames_.clear();
    for (const auto& [path, synced] : synced_) {
      const StatusOr<std::string> content = ReadWholeFile(files_, path);
      if (!content.ok() || content->size() <= synced) continue;
      Write(path, content->substr(0, synced + random_() % (content->size() - synced + 1)));
    }
    synced_.clear();
  }

 private:
  struct Renamed {
    std::string from, to;
    std::optional<std::string> before;  // what `to` was
  };

  class View;
  class File : public WritableFile {
   public:
    File(View* view, std::string path, std::unique_ptr<WritableFile> file, uint64_t size)
        : view_(view), path_(std::move(path)), file_(std::move(file)), size_(size) {}
    Status Append(absl::string_view data) override {
      MR_RETURN_IF_ERROR(view_->Change());
      if (view_->disk->full_) return ResourceExhausted(path_, ": no space left on device");
      size_ += data.size();
      return file_->Append(data);
    }
    Status Flush() override { return file_->Flush(); }
    Status Sync() override {
      MR_RETURN_IF_ERROR(view_->Change());
      MR_RETURN_IF_ERROR(file_->Flush());
      if (!view_->disk->lies_) view_->disk->synced_[path_] = size_;
      return absl::OkStatus();
    }
    Status Close() override { return file_->Close(); }

   private:
    View* const view_;
    const std::string path_;
    const std::unique_ptr<WritableFile> file_;
    uint64_t size_;
  };

  class View : public ForwardingFileSystem {
   public:
    explicit View(SimDisk* disk) : ForwardingFileSystem(FileSystem::Posix()), disk(disk) {}
    StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
      MR_RETURN_IF_ERROR(Change());
      const uint64_t size = mode == Mode::kAppend ? base()->FileSize(path).value_or(0) : 0;
      if (mode == Mode::kTruncate || !disk->synced_.contains(path)) disk->synced_[path] = 0;
      MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base()->OpenWritable(path, mode));
      return std::make_unique<File>(this, path, std::move(file), size);
    }
    Status Rename(const std::string& from, const std::string& to) override {
      MR_RETURN_IF_ERROR(Change());
      Renamed renamed{from, to, std::nullopt};
      if (StatusOr<std::string> before = ReadWholeFile(base(), to); before.ok()) renamed.before = *std::move(before);
      MR_RETURN_IF_ERROR(base()->Rename(from, to));
      if (auto node = disk->synced_.extract(from)) {
        disk->synced_.erase(to);
        node.key() = to;
        disk->synced_.insert(std::move(node));
      }
      disk->renames_.push_back(std::move(renamed));
      return absl::OkStatus();
    }
    Status Remove(const std::string& path) override {
      MR_RETURN_IF_ERROR(Change());
      disk->Forget(path);
      return base()->Remove(path);
    }
    Status RemoveTree(const std::string& directory) override {
      MR_RETURN_IF_ERROR(Change());
      disk->Forget(directory);
      return base()->RemoveTree(directory);
    }
    Status MakeDirectories(const std::string& directory) override {
      MR_RETURN_IF_ERROR(Change());
      return base()->MakeDirectories(directory);
    }
    Status SyncDirectory(const std::string& directory) override {
      MR_RETURN_IF_ERROR(Change());
      if (disk->lies_) return absl::OkStatus();
      std::erase_if(disk->renames_, [&](const Renamed& renamed) { return DirectoryOf(renamed.to) == directory; });
      return absl::OkStatus();
    }

    Status Change() {
      if (--left >= 0) return absl::OkStatus();
      if (const auto call = std::exchange(then, nullptr); call != nullptr) call();
      return Unavailable("the host died while it wrote");
    }

    SimDisk* const disk;
    int64_t left = std::numeric_limits<int64_t>::max();
    std::function<void()> then;
  };

  void Write(const std::string& path, const std::string& content) {
    auto file = files_->OpenWritable(path, FileSystem::Mode::kTruncate).value();
    MR_CHECK(file->Append(content).ok() && file->Close().ok());
  }
  // Removals take effect at once, with what was renamed to or from there.
  void Forget(const std::string& path) {
    synced_.erase(path);
    std::erase_if(renames_, [&](const Renamed& renamed) {
      return renamed.to == path || DirectoryOf(renamed.from) == path || DirectoryOf(renamed.to) == path;
    });
  }

  std::mt19937_64 random_;
  FileSystem* const files_ = FileSystem::Posix();
  const TempDirectory directory_;
  std::map<std::string, std::unique_ptr<View>> views_;
  std::map<std::string, uint64_t> synced_;  // bytes of the files that were written and not all synced, by path
  std::vector<Renamed> renames_;            // not synced, in order
  bool full_ = false;
  bool lies_ = false;
};

}  // namespace millrace
