#include "millrace/base/tls_credentials.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "millrace/base/fd.h"
#include "millrace/base/file.h"

namespace millrace {
namespace {

constexpr char kCertificateFile[] = "cert.pem";
constexpr char kKeyFile[] = "key.pem";
constexpr char kAuthorityFile[] = "ca.pem";

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

StatusOr<std::shared_ptr<const TlsCredentials>> TlsFromEnvironment() {
  const char* const folder = std::getenv(kTlsFolderVariable);
  if (folder == nullptr || *folder == '\0') return std::shared_ptr<const TlsCredentials>();
  StatusOr<std::shared_ptr<const TlsCredentials>> tls = ReadTlsCredentials(
      JoinPath(folder, kCertificateFile), JoinPath(folder, kKeyFile), JoinPath(folder, kAuthorityFile));
  if (!tls.ok()) return WithPrefix(absl::StrCat("the environment variable ", kTlsFolderVariable, ": "), tls.status());
  return tls;
}

Status WriteTlsFolder(const TlsCredentials& tls, const std::string& folder) {
  for (const auto& [name, text] : {std::pair(kCertificateFile, &tls.certificate), std::pair(kKeyFile, &tls.key),
                                   std::pair(kAuthorityFile, &tls.authority)}) {
    const std::string path = JoinPath(folder, name);
    const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.ok() || write(file.get(), text->data(), text->size()) != static_cast<ssize_t>(text->size()))
      return absl::ErrnoToStatus(errno, path);
  }
  return absl::OkStatus();
}

}  // namespace millrace
