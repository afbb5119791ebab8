#include "millrace/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace millrace {

Status WithPrefix(string_view prefix, const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(prefix, status.message()));
}

Status WithSuffix(const Status& status, string_view suffix) {
  if (status.ok()) return status;
  return Status(status.code(), absl::StrCat(status.message(), suffix));
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: a Millrace invariant does not hold: %s\n", file, line, condition);
  std::abort();
}

}  // namespace millrace
