#include "millrace/launch/log_files.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

// What goes to the writer: the file, the size, the bytes.
struct LogHeader {
  uint32_t file;
  uint32_t size;
};
// What it answers when it gives up a file.
struct LogFailure {
  int32_t file;
  int32_t error;
};

bool ReadAll(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// The writer's process.
void WriteLogs(int from, int failures, std::vector<Fd> files) {
  LogHeader header;
  std::string bytes;
  while (ReadAll(from, reinterpret_cast<char*>(&header), sizeof(header))) {
    bytes.resize(header.size);
    if (!ReadAll(from, bytes.data(), bytes.size())) return;
    if (header.file >= files.size() || !files[header.file].ok()) continue;
    absl::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t written = write(files[header.file].get(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const LogFailure failure = {static_cast<int32_t>(header.file), errno};
        files[header.file].Reset();
        if (write(failures, &failure, sizeof(failure)) < 0) return;  // nobody wants to know
        break;
      }
      rest.remove_prefix(static_cast<size_t>(written));
    }
  }
}

}  // namespace

StatusOr<LogFiles> LogFiles::Open(const std::string& directory, const std::vector<std::string>& names) {
  MR_RETURN_IF_ERROR(FileSystem::Posix()->MakeDirectories(directory));
  std::vector<Fd> files;
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    files.emplace_back(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!files.back().ok()) return absl::ErrnoToStatus(errno, path);
  }
  MR_ASSIGN_OR_RETURN(Pipe pipe, Pipe::Make());
  MR_ASSIGN_OR_RETURN(Pipe failures, Pipe::Make());
  LogFiles logs;
  logs.left_out_.resize(names.size());
  logs.pid_ = fork();
  if (logs.pid_ < 0) return absl::ErrnoToStatus(errno, "cannot create a process");
  if (logs.pid_ == 0) {
    // It outlives the launcher's signals: the pipe's end tells it that everything is written.
    setsid();
    prctl(PR_SET_NAME, "millrace-logs");
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGTSTP}) signal(number, SIG_IGN);
    pipe.write.Reset();
    // Not the pipe that a reader of the launcher's output waits for.
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
    close(null);
    WriteLogs(pipe.read.get(), failures.write.get(), std::move(files));
    _exit(0);
  }
  SetNonBlocking(pipe.write.get());
  SetNonBlocking(failures.read.get());
  logs.pipe_ = std::move(pipe.write);
  logs.failures_ = std::move(failures.read);
  return logs;
}

void LogFiles::Put(int file, absl::string_view bytes) {
  const LogHeader header = {static_cast<uint32_t>(file), static_cast<uint32_t>(bytes.size())};
  pending_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  absl::StrAppend(&pending_, bytes);
}

bool LogFiles::Add(int file, absl::string_view bytes) {
  if (pid_ == 0 || bytes.empty()) return true;
  if (!pipe_.ok()) return false;
  if (pending_.size() + bytes.size() > kMaxKept) {
    left_out_[file] += bytes.size();
    return false;
  }
  if (left_out_[file] > 0) {
    Put(file, absl::StrCat("\n[millrace: ", left_out_[file], " bytes are missing here: the disk did not keep up]\n"));
    left_out_[file] = 0;
  }
  Put(file, bytes);
  Flush();
  return true;
}

void LogFiles::Flush() {
  size_t written = 0;
  while (written < pending_.size() && pipe_.ok()) {
    const ssize_t size = write(pipe_.get(), pending_.data() + written, pending_.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) {  // the writer is gone
      pipe_.Reset();
      break;
    }
    written += static_cast<size_t>(size);
  }
  pending_.erase(0, pipe_.ok() ? written : pending_.size());
}

void LogFiles::ReadFailures(absl::FunctionRef<void(int, int)> tell) {
  LogFailure failure;
  ssize_t size;
  while ((size = read(failures_.get(), &failure, sizeof(failure))) == sizeof(failure))
    tell(failure.file, failure.error);
  if (size == 0) failures_.Reset();
}

bool LogFiles::Close(absl::Duration patience) {
  if (pid_ <= 0) return true;
  const absl::Time deadline = Clock::Real()->Now() + patience;
  while (!pending_.empty() && Clock::Real()->Now() < deadline) {
    pollfd ready = {pipe_.get(), POLLOUT, 0};
    poll(&ready, 1, 50);
    Flush();
  }
  pipe_.Reset();
  while (Clock::Real()->Now() < deadline) {
    const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno == ECHILD)) return true;
    poll(nullptr, 0, 5);
  }
  return waitpid(pid_, nullptr, WNOHANG) == pid_;
}

}  // namespace millrace::launch
