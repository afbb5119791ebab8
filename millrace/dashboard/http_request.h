// The head of an HTTP/1.1 request, as far as a server needs it that only answers GET and HEAD.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::dashboard {

struct HttpRequest {
  // The largest head that is read. A browser sends the cookies of every program on localhost along.
  static constexpr size_t kMaxHead = 16 << 10;
  static constexpr size_t kMaxHeaders = 100;

  std::string method = {};  // "GET"
  std::string path = {};    // "/output"; begins with a slash, as it was sent: nothing is decoded
  std::string query = {};   // what follows '?', as it was sent
  bool keep_alive = true;
  // Names in lower case, in the order in which they came.
  std::vector<std::pair<std::string, std::string>> headers = {};

  // The header's value; nullopt if there is none, or more than one.
  std::optional<absl::string_view> Header(absl::string_view name) const;
  // The value of a cookie; empty if there is none.
  absl::string_view Cookie(absl::string_view name) const;
  // A decoded parameter of the query; empty if there is none.
  std::string Parameter(absl::string_view name) const;
};

// Parses the bytes up to and including the empty line. Accepts any bytes. INVALID_ARGUMENT says what is malformed:
// bare line feeds, control characters, folded or too many headers, no Host or two of them; UNIMPLEMENTED for a body and
// for versions other than 1.0 and 1.1.
StatusOr<HttpRequest> ParseHttpRequest(absl::string_view head);

// The size of the request's head at the beginning of `bytes`, with the empty line; 0 if it is not complete.
size_t HeadSize(absl::string_view bytes);

}  // namespace millrace::dashboard
