#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "millrace/base/fd.h"
#include "millrace/base/file.h"

namespace millrace {
namespace {

// The status for errno, naming the operation and the file.
Status Error(absl::string_view doing, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", doing, " ", path));
}

class PosixSequentialFile : public SequentialFile {
 public:
  PosixSequentialFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  StatusOr<size_t> Read(size_t n, char* buffer) override {
    size_t done = 0;
    while (done < n) {
      const ssize_t got = read(fd_.get(), buffer + done, n - done);
      if (got == 0) break;
      if (got > 0) {
        done += static_cast<size_t>(got);
      } else if (errno != EINTR) {
        return Error("read", path_);
      }
    }
    return done;
  }

 private:
  const std::string path_;
  const Fd fd_;
};

class PosixRandomAccessFile : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  StatusOr<size_t> Read(uint64_t offset, size_t n, char* buffer) const override {
    size_t done = 0;
    while (done < n) {
      const ssize_t got = pread(fd_.get(), buffer + done, n - done, static_cast<off_t>(offset + done));
      if (got == 0) break;
      if (got > 0) {
        done += static_cast<size_t>(got);
      } else if (errno != EINTR) {
        return Error("read", path_);
      }
    }
    return done;
  }

  void WillRead(uint64_t offset, size_t n) const override {
    posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(n), POSIX_FADV_WILLNEED);
  }

 private:
  const std::string path_;
  const Fd fd_;
};

// Direct I/O (O_DIRECT) writes whole blocks, from aligned memory to aligned offsets.
class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), written_(size), started_(size) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) Close().IgnoreError();
  }

  Status Append(absl::string_view data) override {
    if (block_ != nullptr) return AppendToBlock(data);
    if (buffer_.size() + data.size() > kBufferSize) MR_RETURN_IF_ERROR(Flush());
    if (data.size() > kBufferSize) return Write(data);
    buffer_.append(data.data(), data.size());
    return absl::OkStatus();
  }

  Status Flush() override {
    if (block_ != nullptr) return EndBlocks();
    const Status status = Write(buffer_);
    buffer_.clear();
    return status;
  }

  Status StartSync() override {
    if (block_ != nullptr) return absl::OkStatus();  // direct writes are not buffered
    MR_RETURN_IF_ERROR(Flush());
    // Only a hint: if it fails, Sync does the whole work.
    sync_file_range(fd_, static_cast<off_t>(started_), static_cast<off_t>(written_ - started_), SYNC_FILE_RANGE_WRITE);
    started_ = written_;
    return absl::OkStatus();
  }

  Status SetPastCache(bool on) override {
    if (on == (block_ != nullptr)) return absl::OkStatus();
    MR_RETURN_IF_ERROR(Flush());
    if (on) BeginBlocks();
    return absl::OkStatus();
  }

  Status Sync() override {
    MR_RETURN_IF_ERROR(Flush());
    return fdatasync(fd_) == 0 ? absl::OkStatus() : Error("sync", path_);
  }

  Status Close() override {
    if (fd_ < 0) return FailedPrecondition(path_, " is closed already");
    Status status = Flush();
    if (close(fd_) != 0 && status.ok()) status = Error("close", path_);
    fd_ = -1;
    return status;
  }

 private:
  static constexpr size_t kBufferSize = 1 << 16;
  // The alignment of address, offset and length of a direct write; enough for all common disks.
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kBlockSize = size_t{4} << 20;
  struct Free {
    void operator()(char* block) const { free(block); }
  };

  Status Write(absl::string_view data) {
    if (fd_ < 0) return FailedPrecondition(path_, " is closed");
    while (!data.empty()) {
      const ssize_t put = write(fd_, data.data(), data.size());
      if (put >= 0) {
        data.remove_prefix(static_cast<size_t>(put));
        written_ += static_cast<uint64_t>(put);
        // After a short write the remainder may be unaligned.
        if (!data.empty()) SetDirect(false);
      } else if (errno == EINVAL && direct_) {
        SetDirect(false);
        refused_ = true;
      } else if (errno != EINTR) {
        return Error("write", path_);
      }
    }
    return absl::OkStatus();
  }

  bool SetDirect(bool on) {
    if (direct_ == on) return true;
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0 || fcntl(fd_, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) return false;
    direct_ = on;
    return true;
  }

  void BeginBlocks() {
    void* memory = nullptr;
    if (refused_ || posix_memalign(&memory, kAlignment, kBlockSize) != 0) return;
    block_.reset(static_cast<char*>(memory));
    used_ = 0;
  }
  Status AppendToBlock(absl::string_view data) {
    // Data up to the next aligned offset goes through the page cache.
    const size_t odd = written_ % kAlignment;
    while (!data.empty()) {
      const size_t size = odd != 0 && !direct_ ? kAlignment - odd : kBlockSize;
      const size_t n = std::min(data.size(), size - used_);
      std::memcpy(block_.get() + used_, data.data(), n);
      data.remove_prefix(n);
      used_ += n;
      if (used_ < size) continue;
      MR_RETURN_IF_ERROR(WriteBlock());
      if (refused_ || !SetDirect(true)) {
        refused_ = true;
        block_.reset();
        return Append(data);
      }
    }
    return absl::OkStatus();
  }
  Status WriteBlock() { return Write({block_.get(), std::exchange(used_, 0)}); }
  // Writes the partial block through the page cache and leaves direct mode.
  Status EndBlocks() {
    SetDirect(false);
    const Status status = WriteBlock();
    block_.reset();
    started_ = written_;
    return status;
  }

  const std::string path_;
  int fd_;
  uint64_t written_;  // offset of the next byte
  uint64_t started_;  // end of the range whose writeback was started
  std::string buffer_;
  std::unique_ptr<char, Free> block_;  // null: buffer_ is used
  size_t used_ = 0;                    // bytes of block_ in use
  bool direct_ = false;                // O_DIRECT is set
  bool refused_ = false;               // the file system does not support O_DIRECT
};

class PosixFileSystem : public FileSystem {
 public:
  StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& path) override {
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.ok()) return Error("open", path);
    return std::make_unique<PosixSequentialFile>(path, std::move(fd));
  }

  StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string& path) override {
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.ok()) return Error("open", path);
    return std::make_unique<PosixRandomAccessFile>(path, std::move(fd));
  }

  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string& path, Mode mode) override {
    const int how = mode == Mode::kAppend ? O_APPEND : O_TRUNC;
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    if (fd < 0) return Error("create", path);
    struct stat info;
    const bool has_size = mode == Mode::kAppend && fstat(fd, &info) == 0;
    return std::make_unique<PosixWritableFile>(path, fd, has_size ? static_cast<uint64_t>(info.st_size) : 0);
  }

  StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return Error("look at", path);
    return static_cast<uint64_t>(info.st_size);
  }

  Status Exists(const std::string& path) override {
    struct stat info;
    return stat(path.c_str(), &info) == 0 ? absl::OkStatus() : Error("find", path);
  }

  StatusOr<bool> IsDirectory(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return Error("find", path);
    return S_ISDIR(info.st_mode);
  }

  Status SyncDirectory(const std::string& directory) override {
    const Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.ok()) return Error("open", directory);
    return fsync(fd.get()) == 0 ? absl::OkStatus() : Error("sync", directory);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return Error(absl::StrCat("rename ", from, " to"), to);
  }

  StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    DIR* dir = opendir(directory.c_str());
    if (dir == nullptr) return Error("list", directory);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir)) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status MakeDirectories(const std::string& directory) override {
    for (size_t end = 0; end != std::string::npos;) {
      end = directory.find('/', end + 1);
      const std::string part = directory.substr(0, end);
      if (mkdir(part.c_str(), 0777) == 0 || errno == EEXIST) continue;
      // mkdir of an existing parent may fail with another error than EEXIST, for example on a read-only file system.
      const Status status = Error("make the directory", part);
      if (end == std::string::npos || !Exists(part).ok()) return status;
    }
    struct stat info;
    if (stat(directory.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
      return AlreadyExists("cannot make the directory ", directory, ": a file of that name exists");
    }
    return absl::OkStatus();
  }

  Status Remove(const std::string& path) override {
    return std::remove(path.c_str()) == 0 ? absl::OkStatus() : Error("remove", path);
  }

  Status RemoveTree(const std::string& directory) override {
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(directory));
    for (const std::string& name : names) {
      const std::string path = JoinPath(directory, name);
      struct stat info;
      const bool is_directory = lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
      MR_RETURN_IF_ERROR(is_directory ? RemoveTree(path) : Remove(path));
    }
    return Remove(directory);
  }

  StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) override {
    const char* root = std::getenv("TMPDIR");
    std::string path = JoinPath(root != nullptr && *root != '\0' ? root : "/tmp", absl::StrCat(prefix, ".XXXXXX"));
    if (mkdtemp(path.data()) == nullptr) return Error("make the directory", path);
    return path;
  }
};

}  // namespace

FileSystem* FileSystem::Posix() {
  static PosixFileSystem* const files = new PosixFileSystem;
  return files;
}

}  // namespace millrace
