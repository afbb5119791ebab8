#include "millrace/launch/output_echo.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "millrace/base/clock.h"

namespace millrace::launch {

void OutputEcho::Add(bool error, absl::string_view bytes) {
  if (!closed_[error]) absl::StrAppend(&pending_[error], bytes);
}

size_t OutputEcho::Piece(bool error) const {
  // A pipe that is ready takes this much without blocking, and in one piece.
  const absl::string_view first = absl::string_view(pending_[error]).substr(0, PIPE_BUF);
  const size_t line = first.find_last_of("\r\n");
  if (line != absl::string_view::npos) return line + 1;
  return ended_ || first.size() == PIPE_BUF ? first.size() : 0;
}

int OutputEcho::waiting_fd(bool error) const { return Piece(error) == 0 ? -1 : error ? STDERR_FILENO : STDOUT_FILENO; }

void OutputEcho::Write(bool error) {
  std::string& pending = pending_[error];
  const ssize_t size = write(error ? STDERR_FILENO : STDOUT_FILENO, pending.data(), Piece(error));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size < 0) {
    // Nobody reads it any more.
    closed_[error] = true;
    pending.clear();
    return;
  }
  pending.erase(0, size);
}

void OutputEcho::Drain(absl::Duration limit) {
  set_ended(true);
  const absl::Time deadline = Clock::Real()->Now() + limit;
  while (size() > 0 && Clock::Real()->Now() < deadline) {
    pollfd fds[2] = {{waiting_fd(false), POLLOUT, 0}, {waiting_fd(true), POLLOUT, 0}};
    poll(fds, 2, 100);
    for (const bool error : {false, true}) {
      if (fds[error].revents != 0) Write(error);
    }
  }
}

}  // namespace millrace::launch
