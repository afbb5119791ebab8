#include "millrace/launch/init_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "millrace/launch/exit_status.h"

namespace millrace::launch {
namespace {

// Reaps what has ended; exits if that was the child.
void ReapAsInit(pid_t child) {
  int status = 0;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended == child) _exit(ExitStatus::OfWait(status).ShellCode());
  }
  if (ended < 0 && errno == ECHILD) _exit(1);
}

}  // namespace

void SplitOffInit() {
  if (getpid() != 1) return;
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t child = fork();
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return;  // better without than not at all
  }
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  prctl(PR_SET_NAME, "millrace-init");
  while (true) {
    int number = 0;
    if (sigwait(&all, &number) != 0) continue;
    if (number == SIGCHLD) {
      ReapAsInit(child);
    } else {
      kill(child, number);
    }
  }
}

}  // namespace millrace::launch
