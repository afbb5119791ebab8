#include "millrace/launch/exit_status.h"

#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace millrace::launch {

std::string SignalName(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", number);
}

std::string ExitStatus::ToString() const {
  return signal != 0 ? absl::StrCat("was killed by ", SignalName(signal)) : absl::StrCat("exited with code ", code);
}

ExitStatus ExitStatus::OfWait(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status)};
}

}  // namespace millrace::launch
