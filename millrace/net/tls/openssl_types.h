// Owners of OpenSSL's objects. Internal to this folder.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace::net {

template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslFree<SSL_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;

// The oldest error of this thread, as text; clears them all. `otherwise` if there is none.
std::string OpensslError(absl::string_view otherwise);

// The first certificate of a PEM text; null if there is none.
CertificatePtr ParseCertificate(absl::string_view pem);
KeyPtr ParseKey(absl::string_view pem);

}  // namespace millrace::net
