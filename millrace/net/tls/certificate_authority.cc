#include "millrace/net/tls/certificate_authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "millrace/net/tls/openssl_types.h"

namespace millrace::net {
namespace {

constexpr long kDay = 24 * 60 * 60;
constexpr long kValidSince = -30 * kDay;
constexpr long kValidFor = 3650 * kDay;
constexpr int kSerialBytes = 16;
// X.509 has no room for longer ones.
constexpr size_t kLongestName = 64;

Status OpensslFailure(absl::string_view what) { return Internal("OpenSSL: ", what, ": ", OpensslError("no reason")); }

StatusOr<std::string> PemText(const BioPtr& bio, bool written) {
  if (!written) return OpensslFailure("PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

StatusOr<std::string> CertificateText(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  return PemText(bio, PEM_write_bio_X509(bio.get(), certificate) == 1);
}

StatusOr<std::string> KeyText(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  return PemText(bio, PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
}

// A part of a subjectAltName.
std::string AlternativeName(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  const bool numeric =
      inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
  return absl::StrCat(numeric ? "IP:" : "DNS:", host);
}

using Extensions = std::vector<std::pair<int, std::string>>;

// `issuer` is null for a certificate that is signed by its own key.
StatusOr<CertificatePtr> Sign(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                              const Extensions& extensions) {
  CertificatePtr certificate(X509_new());
  unsigned char serial[kSerialBytes];
  if (certificate == nullptr || RAND_bytes(serial, sizeof(serial)) != 1) return OpensslFailure("a new certificate");
  serial[0] = (serial[0] & 0x7f) | 0x40;  // positive and of constant length
  X509_set_version(certificate.get(), X509_VERSION_3);
  const std::unique_ptr<BIGNUM, OpensslFree<BN_free>> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()));
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kValidSince);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidFor);
  const std::string short_name = name.substr(0, kLongestName);
  if (X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(short_name.data()),
                                 static_cast<int>(short_name.size()), -1, 0) != 1)
    return OpensslFailure("the name of a certificate");
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer == nullptr ? certificate.get() : issuer));
  X509_set_pubkey(certificate.get(), key);
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer == nullptr ? certificate.get() : issuer, certificate.get(), nullptr, nullptr, 0);
  for (const auto& [id, value] : extensions) {
    const std::unique_ptr<X509_EXTENSION, OpensslFree<X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
    if (extension == nullptr || X509_add_ext(certificate.get(), extension.get(), -1) != 1)
      return OpensslFailure(absl::StrCat("the extension ", value));
  }
  if (X509_sign(certificate.get(), issuer_key, EVP_sha256()) == 0) return OpensslFailure("a signature");
  return certificate;
}

StatusOr<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslFailure("a new key");
  return key;
}

}  // namespace

struct CertificateAuthority::State {
  KeyPtr key;
  CertificatePtr certificate;
  std::string certificate_text;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<State> state) : state_(std::move(state)) {}
CertificateAuthority::~CertificateAuthority() = default;

StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Make(const std::string& name) {
  auto state = std::make_unique<State>();
  MR_ASSIGN_OR_RETURN(state->key, NewKey());
  MR_ASSIGN_OR_RETURN(state->certificate, Sign(name, state->key.get(), nullptr, state->key.get(),
                                               {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                                {NID_key_usage, "critical,keyCertSign"},
                                                {NID_subject_key_identifier, "hash"}}));
  MR_ASSIGN_OR_RETURN(state->certificate_text, CertificateText(state->certificate.get()));
  return std::unique_ptr<CertificateAuthority>(new CertificateAuthority(std::move(state)));
}

StatusOr<TlsCredentials> CertificateAuthority::Issue(const std::string& name, absl::Span<const std::string> hosts,
                                                     CertificateRole role) const {
  Extensions extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                           {NID_key_usage, "critical,digitalSignature"},
                           {NID_ext_key_usage, role == CertificateRole::kTask ? "serverAuth,clientAuth" : "clientAuth"},
                           {NID_authority_key_identifier, "keyid"}};
  if (!hosts.empty()) {
    std::vector<std::string> names;
    for (const std::string& host : hosts) names.push_back(AlternativeName(host));
    extensions.emplace_back(NID_subject_alt_name, absl::StrJoin(names, ","));
  }
  MR_ASSIGN_OR_RETURN(const KeyPtr key, NewKey());
  MR_ASSIGN_OR_RETURN(const CertificatePtr certificate,
                      Sign(name, key.get(), state_->certificate.get(), state_->key.get(), extensions));
  TlsCredentials credentials;
  credentials.authority = state_->certificate_text;
  MR_ASSIGN_OR_RETURN(credentials.certificate, CertificateText(certificate.get()));
  MR_ASSIGN_OR_RETURN(credentials.key, KeyText(key.get()));
  return credentials;
}

}  // namespace millrace::net
