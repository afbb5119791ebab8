#include "millrace/dashboard/http_response.h"

#include "absl/strings/str_cat.h"

namespace millrace::dashboard {
namespace {

// Scripts, styles and connections of this server only: nothing inline, nothing from elsewhere, not within a frame.
constexpr char kFixedHeaders[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n";

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    default:
      return "Service Unavailable";
  }
}

int StatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kDeadlineExceeded:
      return 408;
    case absl::StatusCode::kResourceExhausted:
      return 431;
    case absl::StatusCode::kUnimplemented:
      return 501;
    default:
      return 503;
  }
}

}  // namespace

HttpResponse HttpResponse::Text(int status, std::string text) {
  return {.status = status, .body = std::make_shared<const std::string>(std::move(text))};
}

HttpResponse HttpResponse::Error(const Status& status) {
  return Text(StatusOf(status.code()), absl::StrCat(status.message(), "\n"));
}

std::string HttpResponse::Head(bool keep_alive) const {
  std::string head =
      absl::StrCat("HTTP/1.1 ", status, " ", Reason(status), "\r\n", kFixedHeaders, "Content-Type: ", type, "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  if (!stream) absl::StrAppend(&head, "Content-Length: ", body != nullptr ? body->size() : 0, "\r\n");
  absl::StrAppend(&head, "Connection: ", keep_alive && !stream ? "keep-alive" : "close", "\r\n\r\n");
  return head;
}

}  // namespace millrace::dashboard
