#include "millrace/launch/hang_question.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

constexpr size_t kMaxAnswer = 1 << 20;

}  // namespace

StatusOr<HangQuestion> HangQuestion::Ask(const std::string& millrace, absl::Duration limit,
                                         const std::vector<std::string>& tasks, const TlsCredentials* credentials) {
  MR_ASSIGN_OR_RETURN(Pipe pipe, Pipe::Make());
  MR_ASSIGN_OR_RETURN(Pipe in, Pipe::Make());
  if (credentials != nullptr) {
    const std::string text = EncodeCredentials(*credentials);  // a few kilobytes, for which a new pipe has room
    SetNonBlocking(in.write.get());
    if (write(in.write.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return Unavailable("the pipe is too small for credentials");
  }
  SpawnOptions options = {
      .arguments = {"millrace", "explain-hang", absl::StrFormat("%.3f", absl::ToDoubleSeconds(limit))},
      .path = millrace,
      .descriptors = {in.read.get(), pipe.write.get(), -1},
      .parent_death_signal = SIGKILL};
  options.arguments.insert(options.arguments.end(), tasks.begin(), tasks.end());
  SpawnError error;
  const pid_t pid = Spawn(options, &error);
  if (pid < 0) return Unavailable(error.text);
  SetNonBlocking(pipe.read.get());
  return HangQuestion(pid, std::move(pipe.read));
}

bool HangQuestion::Read() {
  char bytes[4096];
  while (true) {
    const ssize_t size = read(fd_.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0 || text_.size() > kMaxAnswer) return true;
    text_.append(bytes, size);
  }
}

HangAnswer HangQuestion::answer() const {
  const std::vector<std::string> lines = absl::StrSplit(text_, '\n', absl::SkipEmpty());
  if (lines.empty()) return {};
  return {lines[0], {lines.begin() + 1, lines.end()}};
}

}  // namespace millrace::launch
