#include "millrace/cluster/server_access.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_split.h"

namespace millrace {
namespace {

std::string ReadVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

StatusOr<ServerAccess> FindServerAccess(const net::HostPort& address, const ServerOptions& options) {
  ServerAccess access{.tls = options.tls, .file_roots = options.file_roots};
  const bool insecure = options.insecure || InsecureByEnvironment();
  const bool loopback = net::IsLoopback(address.host);
  if (options.insecure && options.tls != nullptr)
    return InvalidArgument("both TLS and --insecure (ServerOptions::insecure) are given");
  if (access.tls == nullptr && !insecure) {
    MR_ASSIGN_OR_RETURN(access.tls, TlsFromEnvironment());
  }
  if (access.tls == nullptr && !loopback && !insecure) {
    return FailedPrecondition(
        "without TLS, anyone who can reach ", net::JoinHostPort(address.host, address.port),
        " could run graphs on this machine; start the cluster with `millrace launch`, or give --tls_cert, --tls_key "
        "and "
        "--tls_ca (ServerOptions::tls), or on a network that you trust --insecure (ServerOptions::insecure, ",
        kInsecureVariable, "=1)");
  }
  if (access.file_roots.empty())
    access.file_roots = absl::StrSplit(ReadVariable(kFileRootVariable), ':', absl::SkipEmpty());
  if (access.file_roots.empty()) {
    access.no_files = !loopback;
  } else if (std::find(access.file_roots.begin(), access.file_roots.end(), "/") != access.file_roots.end()) {
    access.file_roots.clear();
  }
  access.client_clusters = options.client_clusters.value_or(loopback && access.tls == nullptr);
  return access;
}

}  // namespace millrace
