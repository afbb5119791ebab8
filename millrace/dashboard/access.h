// Decides which requests a dashboard answers.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/dashboard/http_request.h"

namespace millrace::dashboard {

struct AccessOptions {
  std::string token = {};  // that of the page's address, and of scrapers
  std::string cookie_name = {}, cookie_value = {};
  // Names under which the server may be asked, besides those of the loopback interface.
  std::vector<std::string> hosts = {};
};

// Immutable and thread-safe.
class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // UNIMPLEMENTED for methods other than GET and HEAD. PERMISSION_DENIED if the request was sent to another host name:
  // a page of that name, whose owner made it an address of this machine, must not read the answer (DNS rebinding). If
  // `secret`, also for a request that a page of another origin makes, and UNAUTHENTICATED for one that has neither the
  // token (Authorization: Bearer) nor the cookie.
  Status Check(const HttpRequest& request, bool secret) const;
  // Whether it has the token or the cookie.
  bool Identifies(const HttpRequest& request) const;
  bool HasToken(const HttpRequest& request) const;
  // The header's value that gives a browser the cookie.
  std::string SetCookie(bool tls) const;

 private:
  bool IsOwnHost(absl::string_view host) const;
  AccessOptions options_;
};

// `bytes` random bytes as hexadecimal digits, from the system's generator.
std::string RandomToken(int bytes = 16);

// INVALID_ARGUMENT for a token that is too short or has other characters than letters, digits, '-' and '_'.
Status CheckToken(absl::string_view token);

}  // namespace millrace::dashboard
