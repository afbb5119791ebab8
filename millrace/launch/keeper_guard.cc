#include "millrace/launch/keeper_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "millrace/launch/exit_status.h"
#include "millrace/launch/process_tree.h"

namespace millrace::launch {
namespace {

volatile pid_t guarded_keeper = 0;

// Whoever has started the keeper, such as a scheduler, knows the guard's pid.
void PassOn(int signal) { sigqueue(guarded_keeper, signal, sigval{}); }

}  // namespace

void KillAllBelow() {
  int pause_ms = 1;
  for (int waited_ms = 0; waited_ms < 5000; waited_ms += pause_ms) {
    const int left = SignalDescendants(SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    // Processes that were killed may have forked meanwhile.
    if (left == 0 && Descendants(getpid()).empty()) break;
    poll(nullptr, 0, pause_ms);
    pause_ms = std::min(2 * pause_ms, 50);
  }
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

void SplitOffGuard(absl::FunctionRef<void()> clean_up) {
  AdoptOrphans();
  const pid_t guard = getpid();
  const pid_t keeper = fork();
  if (keeper == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != guard) _exit(1);
    return;
  }
  if (keeper < 0) return;  // continue without a guard
  prctl(PR_SET_NAME, "millrace-guard");
  // The launcher watches these descriptors to see whether the keeper is alive.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  close(null);
  guarded_keeper = keeper;
  signal(SIGTERM, PassOn);
  for (const int number : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP}) signal(number, SIG_IGN);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == keeper || (ended < 0 && errno != EINTR)) break;
  }
  KillAllBelow();
  clean_up();
  _exit(ExitStatus::OfWait(status).ShellCode());
}

}  // namespace millrace::launch
