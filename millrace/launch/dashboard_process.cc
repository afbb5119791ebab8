#include "millrace/launch/dashboard_process.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "millrace/launch/spawn.h"

namespace millrace::launch {

Status DashboardProcess::Start(const std::string& millrace, const std::vector<std::string>& flags) {
  MR_ASSIGN_OR_RETURN(Pipe pipe, Pipe::Make());
  SpawnOptions options = {.arguments = {"millrace", "dashboard", absl::StrCat("--job=", getpid())},
                          .path = millrace,
                          .descriptors = {-1, pipe.write.get(), pipe.write.get()},
                          .parent_death_signal = SIGTERM};
  options.arguments.insert(options.arguments.end(), flags.begin(), flags.end());
  SpawnError error;
  const pid_t pid = Spawn(options, &error);
  if (pid < 0) return Unavailable(error.text);
  pid_ = pid;
  SetNonBlocking(pipe.read.get());
  fd_ = std::move(pipe.read);
  return absl::OkStatus();
}

void DashboardProcess::OnReaped(pid_t pid) {
  if (pid == pid_) pid_ = 0;
}

void DashboardProcess::Read(const std::function<void(absl::string_view line)>& tell) {
  char bytes[4096];
  while (fd_.ok()) {
    const ssize_t size = read(fd_.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      lines_.Flush(tell);
      fd_.Reset();
      return;
    }
    lines_.Add(absl::string_view(bytes, size), tell);
    has_spoken_ = true;
  }
}

void DashboardProcess::Signal(int number) {
  if (pid_ != 0) kill(pid_, number);
}

}  // namespace millrace::launch
