// How a process ended.
#pragma once

#include <string>

namespace millrace::launch {

// "SIGKILL"; "signal 77" for one without a name.
std::string SignalName(int number);

struct ExitStatus {
  int code = 0;    // where signal is 0
  int signal = 0;  // that killed it

  bool ok() const { return code == 0 && signal == 0; }
  // As a shell gives it: 128 + signal.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  // "exited with code 3", "was killed by SIGKILL".
  std::string ToString() const;

  // From what waitpid gives.
  static ExitStatus OfWait(int wait_status);
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

}  // namespace millrace::launch
