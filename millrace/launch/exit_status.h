// How a process ended.
#pragma once

#include <string>

namespace millrace::launch {

// "SIGKILL", or "signal 77" for a signal without a name.
std::string SignalName(int number);

struct ExitStatus {
  int code = 0;    // valid if signal is 0
  int signal = 0;  // the signal that killed the process

  bool ok() const { return code == 0 && signal == 0; }
  // As a shell reports it: 128 + signal.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  // "exited with code 3", "was killed by SIGKILL".
  std::string ToString() const;

  // From the status that waitpid returns.
  static ExitStatus OfWait(int wait_status);
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

}  // namespace millrace::launch
