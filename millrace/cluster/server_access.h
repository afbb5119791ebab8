// Who may use a server, and which files their graphs may use: ServerOptions together with the environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/cluster/server.h"
#include "millrace/net/address.h"

namespace millrace {

// What `millrace launch` sets for its tasks.
inline constexpr char kInsecureVariable[] = "MILLRACE_INSECURE";
inline constexpr char kFileRootVariable[] = "MILLRACE_FILE_ROOT";

struct ServerAccess {
  std::shared_ptr<const TlsCredentials> tls = nullptr;  // null: anyone who reaches the port
  std::vector<std::string> file_roots = {};             // empty: all files, or with `no_files` none
  bool no_files = false;
  bool client_clusters = false;
};

// True if MILLRACE_INSECURE is set to something else than 0.
bool InsecureByEnvironment();

// FAILED_PRECONDITION, with what to do about it, if machines beyond this one could use the server without TLS.
StatusOr<ServerAccess> FindServerAccess(const net::HostPort& address, const ServerOptions& options);

}  // namespace millrace
