#include "millrace/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace millrace {

namespace {

// The same error with another message.
Status WithMessage(const Status& status, const std::string& message) {
  Status changed(status.code(), message);
  status.ForEachPayload([&](string_view type, const absl::Cord& payload) { changed.SetPayload(type, payload); });
  return changed;
}

}  // namespace

Status WithPrefix(string_view prefix, const Status& status) {
  return status.ok() ? status : WithMessage(status, absl::StrCat(prefix, status.message()));
}

Status WithSuffix(const Status& status, string_view suffix) {
  return status.ok() ? status : WithMessage(status, absl::StrCat(status.message(), suffix));
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: a Millrace invariant does not hold: %s\n", file, line, condition);
  std::abort();
}

}  // namespace millrace
