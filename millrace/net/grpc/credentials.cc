#include "millrace/net/grpc/credentials.h"

#include "absl/strings/match.h"
#include "millrace/base/file.h"

namespace millrace::net {
namespace {

StatusOr<std::string> ReadPem(const std::string& what, const std::string& name) {
  StatusOr<std::string> text = ReadWholeFile(FileSystem::Posix(), name);
  if (!text.ok()) return WithPrefix(absl::StrCat("the TLS ", what, ": "), text.status());
  if (!absl::StrContains(*text, "-----BEGIN ")) {
    return InvalidArgument("the TLS ", what, ": ", name, " is not a PEM file (there is no \"-----BEGIN\" in it)");
  }
  return text;
}

}  // namespace

StatusOr<std::shared_ptr<const TlsCredentials>> ReadTlsCredentials(const std::string& certificate_file, const std::string& key_file,
                                                                   const std::string& authority_file) {
  auto tls = std::make_shared<TlsCredentials>();
  MR_ASSIGN_OR_RETURN(tls->certificate, ReadPem("certificate", certificate_file));
  MR_ASSIGN_OR_RETURN(tls->key, ReadPem("key", key_file));
  MR_ASSIGN_OR_RETURN(tls->authority, ReadPem("authority", authority_file));
  return tls;
}

ChannelCredentials NewChannelCredentials(const TlsCredentials* tls) {
  if (tls == nullptr) return ChannelCredentials(grpc_insecure_credentials_create());
  grpc_ssl_pem_key_cert_pair pair = {tls->key.c_str(), tls->certificate.c_str()};
  return ChannelCredentials(grpc_ssl_credentials_create(tls->authority.c_str(), &pair, nullptr, nullptr));
}

ServerCredentials NewServerCredentials(const TlsCredentials* tls) {
  if (tls == nullptr) return ServerCredentials(grpc_insecure_server_credentials_create());
  grpc_ssl_pem_key_cert_pair pair = {tls->key.c_str(), tls->certificate.c_str()};
  return ServerCredentials(grpc_ssl_server_credentials_create_ex(
      tls->authority.c_str(), &pair, 1, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, nullptr));
}

}  // namespace millrace::net
