// Registers the session factory for "grpc://" targets.
#include <map>
#include <random>
#include <tuple>

#include "absl/strings/match.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/cluster/client/remote_session.h"
#include "millrace/cluster/cluster_transport.h"
#include "millrace/cluster/server_access.h"

namespace millrace {
namespace {

// One transport for each set of credentials, shared by all sessions of the process. They are never destroyed, since
// answers to closed sessions may still arrive.
class ClientTransports {
 public:
  static ClientTransports& Get() {
    static auto* const transports = new ClientTransports;
    return *transports;
  }

  StatusOr<net::Transport*> For(const TlsFiles& tls) {
    const bool insecure = tls.certificate.empty() && tls.key.empty() && tls.authority.empty();
    if (!insecure && (tls.certificate.empty() || tls.key.empty() || tls.authority.empty())) {
      return InvalidArgument("TLS needs all of a certificate, its key and the authority's certificate");
    }
    // Read each time, because certificate files may be renewed.
    net::GrpcTransportOptions options;
    std::tuple<std::string, std::string, std::string> key;
    if (!insecure) {
      MR_ASSIGN_OR_RETURN(options.tls, ReadTlsCredentials(tls.certificate, tls.key, tls.authority));
    } else if (!InsecureByEnvironment()) {
      MR_ASSIGN_OR_RETURN(options.tls, TlsFromEnvironment());
    }
    if (options.tls != nullptr) key = {options.tls->certificate, options.tls->key, options.tls->authority};
    MutexLock lock(&mu_);
    auto& transport = transports_[key];
    if (transport == nullptr) {
      MR_ASSIGN_OR_RETURN(transport, NewClusterTransport("", std::move(options)));
    }
    return transport.get();
  }

 private:
  Mutex mu_;
  std::map<std::tuple<std::string, std::string, std::string>, std::unique_ptr<net::Transport>> transports_
      ABSL_GUARDED_BY(mu_);
};

StatusOr<RemoteSessionOptions> RemoteOptions(const SessionOptions& options) {
  RemoteSessionOptions remote;
  MR_ASSIGN_OR_RETURN(remote.transport, ClientTransports::Get().For(options.tls));
  std::random_device entropy;
  remote.first_request_id = uint64_t{entropy()} << 32 | entropy();
  return remote;
}

// The server in this process that the session may use without RPCs; null if there is none.
std::shared_ptr<const LocalServer> ServerInProcess(const SessionOptions& options) {
  return options.config.rpc_options().use_rpc_for_inprocess_master() ? nullptr : FindLocalServer(options.target);
}

class RemoteSessionFactory : public SessionFactory {
 public:
  bool Accepts(const std::string& target) const override { return absl::StartsWith(target, "grpc://"); }
  StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options) override {
    if (const auto local = ServerInProcess(options)) return local->create_session(options);
    MR_ASSIGN_OR_RETURN(const RemoteSessionOptions remote, RemoteOptions(options));
    return RemoteSession::Create(options, remote);
  }
};

const bool registered = [] {
  SessionFactory::Register(std::make_unique<RemoteSessionFactory>());
  return true;
}();

}  // namespace

Status ResetServer(const SessionOptions& options, const std::vector<std::string>& containers) {
  if (const auto local = ServerInProcess(options); local != nullptr && local->reset) {
    return local->reset(containers, options.device_filters);
  }
  MR_ASSIGN_OR_RETURN(const RemoteSessionOptions remote, RemoteOptions(options));
  return RemoteSession::Reset(options, containers, remote);
}

}  // namespace millrace
