#include "millrace/base/tls_credentials.h"

#include "absl/strings/match.h"
#include "millrace/base/file.h"

namespace millrace {
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

StatusOr<std::shared_ptr<const TlsCredentials>> ReadTlsCredentials(const std::string& certificate_file,
                                                                   const std::string& key_file,
                                                                   const std::string& authority_file) {
  auto tls = std::make_shared<TlsCredentials>();
  MR_ASSIGN_OR_RETURN(tls->certificate, ReadPem("certificate", certificate_file));
  MR_ASSIGN_OR_RETURN(tls->key, ReadPem("key", key_file));
  MR_ASSIGN_OR_RETURN(tls->authority, ReadPem("authority", authority_file));
  return tls;
}

}  // namespace millrace
