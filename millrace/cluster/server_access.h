// Who may use a server, and which files their graphs may use: ServerOptions together with the environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/cluster/server.h"
#include "millrace/cluster/server_environment.h"
#include "millrace/net/address.h"

namespace millrace {

struct ServerAccess {
  std::shared_ptr<const TlsCredentials> tls = nullptr;  // null: anyone who reaches the port
  std::vector<std::string> file_roots = {};             // empty: all files, or with `no_files` none
  bool no_files = false;
  bool client_clusters = false;
};

// FAILED_PRECONDITION, with what to do about it, if machines beyond this one could use the server without TLS.
StatusOr<ServerAccess> FindServerAccess(const net::HostPort& address, const ServerOptions& options);

}  // namespace millrace
