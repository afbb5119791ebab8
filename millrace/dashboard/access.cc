#include "millrace/dashboard/access.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "millrace/net/address.h"

namespace millrace::dashboard {
namespace {

constexpr size_t kShortestToken = 16;

// Takes the same time for every `given` of a length.
bool SameSecret(absl::string_view given, absl::string_view secret) {
  if (given.size() != secret.size() || secret.empty()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < given.size(); ++i) difference |= static_cast<unsigned char>(given[i] ^ secret[i]);
  return difference == 0;
}

// "localhost" of "localhost:41213", "::1" of "[::1]"; empty if it is malformed.
std::string HostName(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) {
    const size_t end = host.find(']');
    return end == absl::string_view::npos ? "" : std::string(host.substr(0, end));
  }
  const size_t colon = host.find(':');
  int port;
  if (colon != absl::string_view::npos && !absl::SimpleAtoi(host.substr(colon + 1), &port)) return "";
  return absl::AsciiStrToLower(host.substr(0, colon));
}

// Whether a page of another origin has made the request, as far as the browser says.
bool IsForeign(const HttpRequest& request) {
  if (const auto site = request.Header("sec-fetch-site"); site && *site != "same-origin" && *site != "none")
    return true;
  absl::string_view origin = request.Header("origin").value_or("");
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  return scheme == absl::string_view::npos || origin.substr(scheme + 3) != request.Header("host").value_or("");
}

}  // namespace

bool Access::IsOwnHost(absl::string_view host) const {
  const std::string name = HostName(host);
  return net::IsLoopback(name) || std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end();
}

bool Access::HasToken(const HttpRequest& request) const {
  absl::string_view authorization = request.Header("authorization").value_or("");
  return absl::ConsumePrefix(&authorization, "Bearer ") && SameSecret(authorization, options_.token);
}

bool Access::Identifies(const HttpRequest& request) const {
  return HasToken(request) || SameSecret(request.Cookie(options_.cookie_name), options_.cookie_value);
}

Status Access::Check(const HttpRequest& request, bool secret) const {
  if (!IsOwnHost(request.Header("host").value_or("")))
    return absl::PermissionDeniedError("this is not a host name of the dashboard; open the address that it printed");
  if (request.method != "GET" && request.method != "HEAD") return Unimplemented("only GET and HEAD are answered");
  if (!secret) return absl::OkStatus();
  if (IsForeign(request)) return absl::PermissionDeniedError("a page of another origin may not read this");
  if (!Identifies(request))
    return absl::UnauthenticatedError("open the whole address that the dashboard printed, with its #k=");
  return absl::OkStatus();
}

std::string Access::SetCookie(bool tls) const {
  return absl::StrCat(options_.cookie_name, "=", options_.cookie_value, "; Path=/; HttpOnly; SameSite=Strict",
                      tls ? "; Secure" : "");
}

std::string RandomToken(int bytes) {
  std::string random(static_cast<size_t>(bytes), 0);
  // A token that can be guessed is worse than none; the system's generator does not fail for so few bytes.
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) std::abort();
  return absl::BytesToHexString(random);
}

Status CheckToken(absl::string_view token) {
  if (token.size() < kShortestToken)
    return InvalidArgument("a token has at least ", kShortestToken,
                           " characters, as `openssl rand -hex 16` makes them");
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
  if (!std::all_of(token.begin(), token.end(), allowed))
    return InvalidArgument("a token consists of letters, digits, '-' and '_'");
  return absl::OkStatus();
}

}  // namespace millrace::dashboard
