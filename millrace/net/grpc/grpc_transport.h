// Calls over gRPC: what TensorFlow's servers and clients speak.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// Who a task is and whom it believes; texts in PEM form, not names of files.
struct TlsCredentials {
  std::string certificate;  // this task's, with what it was signed by where needed
  std::string key;          // its private key
  std::string authority;    // the certificates that a peer's must be signed by
};

struct GrpcTransportOptions {
  // Mutual TLS for every channel and every listener: a peer without a certificate of the authority is refused, and a server's
  // certificate must be for the host that the channel's address names. Null: neither encryption nor authentication, as in TensorFlow.
  std::shared_ptr<const TlsCredentials> tls;
  // How many calls may be in handlers at once; more wait. One thread more than handlers are running waits for the network.
  int max_threads = 64;
};

// Reads the three files; the error names the one that cannot be read or holds no PEM text.
StatusOr<std::shared_ptr<const TlsCredentials>> ReadTlsCredentials(const std::string& certificate_file, const std::string& key_file,
                                                                   const std::string& authority_file);

// Handlers (Service::OnCall, Channel::Done, cancellation callbacks) run on the thread that took the event from the network; meanwhile
// another waits for the next event. Proxies named by the environment are not used. A message holds less than 4 GiB (RESOURCE_EXHAUSTED).
//
// The destructor cancels the calls that are in flight and returns when their Dones have run; not to be called from a handler.
std::unique_ptr<Transport> NewGrpcTransport(GrpcTransportOptions options = {});

}  // namespace millrace::net
