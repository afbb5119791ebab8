// Log lines for people: what happened, to which task, in one line on stderr.
//
// MR_LOG(Warning, "worker/1 answered after ", secs, " s"). The least severity shown is Info, or
// what MILLRACE_LOG_LEVEL says (debug, info, warning, error, off).
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {

enum class LogSeverity { kDebug, kInfo, kWarning, kError, kOff };

bool ShouldLog(LogSeverity severity);
void WriteLog(LogSeverity severity, absl::string_view message);

#define MR_LOG(severity, ...)                                                           \
  do {                                                                                  \
    if (::millrace::ShouldLog(::millrace::LogSeverity::k##severity))                    \
      ::millrace::WriteLog(::millrace::LogSeverity::k##severity, ::absl::StrCat(__VA_ARGS__)); \
  } while (false)

}  // namespace millrace
