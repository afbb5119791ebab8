// absl::Status (TensorFlow's codes) and the macros that propagate it.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {

using absl::Status;
using absl::StatusOr;
using absl::string_view;

#define MR_CONCAT_INNER(a, b) a##b
#define MR_CONCAT(a, b) MR_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` is not OK.
#define MR_RETURN_IF_ERROR(expr)                                                 \
  do {                                                                           \
    if (::absl::Status mr_status_ = (expr); !mr_status_.ok()) return mr_status_; \
  } while (false)

// MR_ASSIGN_OR_RETURN(auto x, MakeX()): declares or assigns x, or returns the error.
#define MR_ASSIGN_OR_RETURN(lhs, expr) MR_ASSIGN_OR_RETURN_INNER(MR_CONCAT(mr_or_, __LINE__), lhs, expr)
#define MR_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = *std::move(tmp)

// How a value is printed in a message: MessageText(value) if its namespace defines one (Debian's absl::StrCat would
// print an enum as a number), otherwise the value itself.
template <typename T>
decltype(auto) MessagePart(const T& value) {
  if constexpr (requires { MessageText(value); }) {
    return MessageText(value);
  } else {
    return (value);
  }
}

// Error makers that concatenate their arguments as absl::StrCat does.
#define MR_DEFINE_ERROR(name, maker)                            \
  template <typename... Args>                                   \
  [[nodiscard]] Status name(const Args&... args) {              \
    return ::absl::maker(::absl::StrCat(MessagePart(args)...)); \
  }
MR_DEFINE_ERROR(InvalidArgument, InvalidArgumentError)
MR_DEFINE_ERROR(NotFound, NotFoundError)
MR_DEFINE_ERROR(AlreadyExists, AlreadyExistsError)
MR_DEFINE_ERROR(FailedPrecondition, FailedPreconditionError)
MR_DEFINE_ERROR(OutOfRange, OutOfRangeError)
MR_DEFINE_ERROR(Unimplemented, UnimplementedError)
MR_DEFINE_ERROR(Internal, InternalError)
MR_DEFINE_ERROR(Unavailable, UnavailableError)
MR_DEFINE_ERROR(DataLoss, DataLossError)
MR_DEFINE_ERROR(Aborted, AbortedError)
MR_DEFINE_ERROR(Cancelled, CancelledError)
MR_DEFINE_ERROR(DeadlineExceeded, DeadlineExceededError)
MR_DEFINE_ERROR(ResourceExhausted, ResourceExhaustedError)
#undef MR_DEFINE_ERROR

// The same code with `prefix` before the message; OK stays OK.
Status WithPrefix(string_view prefix, const Status& status);
// The same code with `suffix` after the message; OK stays OK.
Status WithSuffix(const Status& status, string_view suffix);

// Aborts with a message if false. Only for Millrace's own bugs, never for input from a user or peer.
#define MR_CHECK(condition) \
  (static_cast<bool>(condition) ? (void)0 : ::millrace::CheckFailed(#condition, __FILE__, __LINE__))
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace millrace
