#include "millrace/net/address.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace millrace::net {

StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto bad = [address](absl::string_view why) {
    return InvalidArgument("'", absl::CHexEscape(address), "' is not an address: ", why);
  };
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  if (colon == absl::string_view::npos || host.empty()) return bad("write host:port");
  const absl::string_view port = address.substr(colon + 1);
  HostPort result;
  if (port.empty() || !absl::ascii_isdigit(port[0]) || !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return bad(
        absl::StrCat("'", absl::CHexEscape(port), "' is no valid port; write host:port with a number up to 65535"));
  }
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, "/")) {
    return bad("write host:port without a scheme or a path");
  } else if (absl::StrContains(host, ":")) {
    return bad("an IPv6 host is written in brackets, as in [::1]:2222");
  }
  for (char c : host) {
    if (absl::ascii_isspace(c) || absl::ascii_iscntrl(c) || c == '/' || c == '[' || c == ']')
      return bad("write host:port");
  }
  result.host = std::string(host);
  return result;
}

std::string JoinHostPort(absl::string_view host, int port) {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool IsLocalhost(absl::string_view host) { return absl::EqualsIgnoreCase(host, "localhost"); }

bool IsLoopback(absl::string_view host) {
  if (IsLocalhost(host)) return true;
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace millrace::net
