#include "millrace/net/tls/openssl_types.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace millrace::net {

std::string OpensslError(absl::string_view otherwise) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? std::string(otherwise) : reason;
}

CertificatePtr ParseCertificate(absl::string_view pem) {
  const BioPtr text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CertificatePtr certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) ERR_clear_error();
  return certificate;
}

KeyPtr ParseKey(absl::string_view pem) {
  const BioPtr text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  KeyPtr key(PEM_read_bio_PrivateKey(text.get(), nullptr, nullptr, nullptr));
  if (key == nullptr) ERR_clear_error();
  return key;
}

}  // namespace millrace::net
