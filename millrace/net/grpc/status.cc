#include "millrace/net/grpc/status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace millrace::net {
namespace {

constexpr size_t kMaxEncoded = 6 * 1024;
constexpr absl::string_view kCut = "... (cut)";

}  // namespace

grpc_status_code ToGrpcCode(absl::StatusCode code) {
  const int number = static_cast<int>(code);
  return number >= 0 && number <= GRPC_STATUS_UNAUTHENTICATED ? static_cast<grpc_status_code>(number)
                                                              : GRPC_STATUS_UNKNOWN;
}

std::string ToGrpcMessage(absl::string_view message) {
  size_t encoded = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    const bool plain = message[i] >= ' ' && message[i] <= '~' && message[i] != '%';
    encoded += plain ? 1 : 3;
    if (encoded > kMaxEncoded) {
      // Not within a character of several bytes.
      while (i > 0 && (message[i] & 0xc0) == 0x80) --i;
      return absl::StrCat(message.substr(0, i), kCut);
    }
  }
  return std::string(message);
}

Status FromGrpc(int code, absl::string_view message) {
  if (code == 0) return absl::OkStatus();
  if (code < 0 || code > GRPC_STATUS_UNAUTHENTICATED) {
    return absl::UnknownError(absl::StrCat(message, " (status code ", code, ")"));
  }
  return Status(static_cast<absl::StatusCode>(code), message);
}

std::string WithPlainAddresses(absl::string_view text) {
  if (!absl::StrContains(text, "ipv6:%5B")) return std::string(text);
  return absl::StrReplaceAll(text, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

std::string WithPlainLookup(absl::string_view text) {
  // "DNS resolution failed for host:port: C-ares status is not ARES_SUCCESS qtype=A name=host is_balancer=0: WHY"
  const size_t begin = text.find("DNS resolution failed for ");
  const size_t end = text.find(" is_balancer=", begin == absl::string_view::npos ? 0 : begin);
  if (begin == absl::string_view::npos || end == absl::string_view::npos) return std::string(text);
  const size_t why = text.find(": ", end);
  if (why == absl::string_view::npos) return std::string(text);
  return absl::StrCat(text.substr(0, begin), "its name does not resolve (", text.substr(why + 2), ")");
}

}  // namespace millrace::net
