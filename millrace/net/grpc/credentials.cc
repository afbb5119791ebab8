#include "millrace/net/grpc/credentials.h"

namespace millrace::net {

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
