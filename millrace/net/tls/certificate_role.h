// Whether a certificate is a task's or a client's.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "millrace/base/mutex.h"

namespace millrace::net {

// A task serves, so its certificate is valid for servers. A client's certificate is not: it has an extended key usage
// without serverAuth. A certificate without any extended key usage is a task's.
enum class CertificateRole { kTask, kClient };

// Of a peer whose certificate has been verified. A text that is no certificate is a client's.
CertificateRole RoleOf(absl::string_view certificate_pem);

// Remembers the roles of certificates, since each call asks for its caller's. Thread-safe.
class CertificateRoles {
 public:
  CertificateRole Of(absl::string_view certificate_pem);

 private:
  static constexpr size_t kMostRemembered = 4096;
  Mutex mu_;
  absl::flat_hash_map<std::string, CertificateRole> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
