// --tls_cert, --tls_key and --tls_ca, common to all commands that connect to servers.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "millrace/base/tls_credentials.h"

namespace millrace {

struct TlsFlags {
  std::string cert, key, ca;

  // `whose`: "this task's".
  void Add(CLI::App* command, const std::string& whose) {
    command->add_option("--tls_cert", cert, "Mutual TLS: " + whose + " certificate (PEM file)");
    command->add_option("--tls_key", key, "Mutual TLS: the certificate's private key (PEM file)");
    command->add_option("--tls_ca", ca,
                        "Mutual TLS: the CA that signed the certificates of all tasks and clients (PEM file)");
  }
  // Null if none of the flags is given.
  StatusOr<std::shared_ptr<const TlsCredentials>> Read() const {
    const int given = !cert.empty() + !key.empty() + !ca.empty();
    if (given == 0) return std::shared_ptr<const TlsCredentials>();
    if (given != 3) return InvalidArgument("give all three of --tls_cert, --tls_key and --tls_ca, or none");
    return ReadTlsCredentials(cert, key, ca);
  }
};

}  // namespace millrace
