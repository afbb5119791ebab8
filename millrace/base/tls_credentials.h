// TLS credentials: the certificate of this process, and the authority that signs the certificates of its peers.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"

namespace millrace {

// The contents of PEM files, not their names.
struct TlsCredentials {
  std::string certificate;  // of this task, with intermediate certificates if needed
  std::string key;          // its private key
  std::string authority;    // the CA certificates: a peer's certificate must be signed by one of them
};

// Reads the three files; the error names the one that cannot be read or holds no PEM text.
StatusOr<std::shared_ptr<const TlsCredentials>> ReadTlsCredentials(const std::string& certificate_file,
                                                                   const std::string& key_file,
                                                                   const std::string& authority_file);

// The folder of the credentials that `millrace launch` gives to a task: cert.pem, key.pem and ca.pem.
inline constexpr char kTlsFolderVariable[] = "MILLRACE_TLS_DIR";
// Reads them. Null if the variable is not set or empty.
StatusOr<std::shared_ptr<const TlsCredentials>> TlsFromEnvironment();
// Writes them to an existing folder, which should be private: each file is readable by this user only.
Status WriteTlsFolder(const TlsCredentials& tls, const std::string& folder);

}  // namespace millrace
