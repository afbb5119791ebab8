// Logging to stderr, one line per message, for people to read.
//
// MR_LOG(Warning, "worker/1 answered after ", secs, " s"). MILLRACE_LOG_LEVEL sets the lowest severity shown (debug,
// info, warning, error, off); the default is info.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {

enum class LogSeverity { kDebug, kInfo, kWarning, kError, kOff };

bool ShouldLog(LogSeverity severity);
void WriteLog(LogSeverity severity, absl::string_view message);

#define MR_LOG(severity, ...)                                                                  \
  do {                                                                                         \
    if (::millrace::ShouldLog(::millrace::LogSeverity::k##severity))                           \
      ::millrace::WriteLog(::millrace::LogSeverity::k##severity, ::absl::StrCat(__VA_ARGS__)); \
  } while (false)

}  // namespace millrace
