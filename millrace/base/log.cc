#include "millrace/base/log.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace millrace {
namespace {

LogSeverity LeastShown() {
  static const LogSeverity least = [] {
    const char* env = std::getenv("MILLRACE_LOG_LEVEL");
    const absl::string_view level = env == nullptr ? "info" : env;
    if (level == "debug") return LogSeverity::kDebug;
    if (level == "warning") return LogSeverity::kWarning;
    if (level == "error") return LogSeverity::kError;
    if (level == "off") return LogSeverity::kOff;
    return LogSeverity::kInfo;
  }();
  return least;
}

}  // namespace

bool ShouldLog(LogSeverity severity) { return severity >= LeastShown(); }

void WriteLog(LogSeverity severity, absl::string_view message) {
  static constexpr char kLetters[] = {'D', 'I', 'W', 'E', '-'};
  const std::string line = absl::StrFormat("%c %s] %s\n", kLetters[static_cast<int>(severity)],
                                           absl::FormatTime("%H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), message);
  // One write per line, so that lines of different threads do not interleave.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace millrace
