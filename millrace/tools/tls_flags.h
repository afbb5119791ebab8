// --tls_cert, --tls_key and --tls_ca, which every command that opens a connection takes.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace {

struct TlsFlags {
  std::string cert, key, ca;

  // `whose`: "this task's".
  void Add(CLI::App* command, const std::string& whose) {
    command->add_option("--tls_cert", cert, "Mutual TLS: " + whose + " certificate (PEM file)");
    command->add_option("--tls_key", key, "its private key (PEM file)");
    command->add_option("--tls_ca", ca, "and the authority that signed the certificates of all tasks and clients (PEM file)");
  }
  // Null when none is given.
  StatusOr<std::shared_ptr<const net::TlsCredentials>> Read() const {
    const int given = !cert.empty() + !key.empty() + !ca.empty();
    if (given == 0) return std::shared_ptr<const net::TlsCredentials>();
    if (given != 3) return InvalidArgument("--tls_cert, --tls_key and --tls_ca go together: give all three or none");
    return net::ReadTlsCredentials(cert, key, ca);
  }
};

}  // namespace millrace
