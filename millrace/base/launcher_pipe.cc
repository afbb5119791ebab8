#include "millrace/base/launcher_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

constexpr int kMattersMs = 1000;

// The launcher may be slow or disappear at any time.
class LauncherPipe {
 public:
  static LauncherPipe* OfProcess() {
    static auto* const pipe = new LauncherPipe;
    return pipe;
  }

  bool there() const { return fd_ >= 0; }

  void Write(absl::string_view line, LauncherLine importance) {
    if (fd_ < 0) return;
    MutexLock lock(&mu_);
    const std::string text = absl::StrCat(line, "\n");
    // SIGPIPE from a launcher that has disappeared must not kill the program; the descriptor is not used any more.
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ssize_t size = write(fd_, text.data(), text.size());
    if (size < 0 && errno == EAGAIN && importance == LauncherLine::kMatters) {
      pollfd room = {fd_, POLLOUT, 0};
      if (poll(&room, 1, kMattersMs) > 0) size = write(fd_, text.data(), text.size());
    }
    if (size < 0 && errno == EPIPE) {
      const timespec none = {};
      sigtimedwait(&pipe, nullptr, &none);
      fd_ = -1;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  LauncherPipe() {
    const char* name = std::getenv("MILLRACE_PROGRESS_FD");
    int fd;
    if (name == nullptr || !absl::SimpleAtoi(name, &fd) || fcntl(fd, F_GETFD) < 0) return;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fd_ = fd;
  }

  Mutex mu_;  // one line at a time
  std::atomic<int> fd_{-1};
};

}  // namespace

bool HasLauncher() { return LauncherPipe::OfProcess()->there(); }

void TellLauncher(absl::string_view line, LauncherLine importance) {
  LauncherPipe::OfProcess()->Write(line, importance);
}

}  // namespace millrace
