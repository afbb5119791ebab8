#include "millrace/launch/requeue.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "millrace/base/clock.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

std::string SlurmJob() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

// What the process prints until it ends, or until the deadline.
std::string ReadUntilEnd(int fd, absl::Time deadline) {
  std::string text;
  while (true) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    pollfd ready = {fd, POLLIN, 0};
    if (left <= absl::ZeroDuration()) return text;
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
    char bytes[512];
    const ssize_t size = read(fd, bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    if (text.size() < 4096) text.append(bytes, size);
  }
}

}  // namespace

Status CanRequeue() {
  if (!SlurmJob().empty()) return absl::OkStatus();
  return FailedPrecondition(
      "this is not a job of Slurm: SLURM_JOB_ID is not set. Submit it with sbatch, or leave out --requeue");
}

Status Requeue(absl::Duration timeout) {
  MR_RETURN_IF_ERROR(CanRequeue());
  MR_ASSIGN_OR_RETURN(Pipe output, Pipe::Make());
  SpawnError error;
  const pid_t pid = Spawn(
      {.arguments = {"scontrol", "requeue", SlurmJob()}, .descriptors = {-1, output.write.get(), output.write.get()}},
      &error);
  if (pid <= 0) return Unavailable(error.text);
  output.write.Reset();
  const absl::Time deadline = Clock::Real()->Now() + timeout;
  const std::string text = ReadUntilEnd(output.read.get(), deadline);
  if (Clock::Real()->Now() >= deadline) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const ExitStatus exit = ExitStatus::OfWait(status);
  if (exit.ok()) return absl::OkStatus();
  return Unavailable("scontrol requeue ", SlurmJob(), " ", exit.ToString(), text.empty() ? "" : ": ",
                     absl::StripAsciiWhitespace(text));
}

}  // namespace millrace::launch
