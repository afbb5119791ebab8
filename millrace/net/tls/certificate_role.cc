#include "millrace/net/tls/certificate_role.h"

#include <openssl/x509v3.h>

#include "millrace/net/tls/openssl_types.h"

namespace millrace::net {

CertificateRole RoleOf(absl::string_view certificate_pem) {
  const CertificatePtr certificate = ParseCertificate(certificate_pem);
  if (certificate == nullptr) return CertificateRole::kClient;
  const uint32_t usage = X509_get_extended_key_usage(certificate.get());  // all bits if there is no such extension
  return (usage & XKU_SSL_SERVER) != 0 ? CertificateRole::kTask : CertificateRole::kClient;
}

CertificateRole CertificateRoles::Of(absl::string_view certificate_pem) {
  {
    MutexLock lock(&mu_);
    if (const auto it = known_.find(certificate_pem); it != known_.end()) return it->second;
  }
  const CertificateRole role = RoleOf(certificate_pem);
  MutexLock lock(&mu_);
  if (known_.size() >= kMostRemembered) known_.clear();
  known_.emplace(certificate_pem, role);
  return role;
}

}  // namespace millrace::net
