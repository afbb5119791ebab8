// The server side of lanes: offers, authentication, and the calls being served.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/base/stop_gate.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/acceptor.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/hello.h"
#include "millrace/net/lane/medium.h"
#include "millrace/net/transport.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

class ServerLink;

// Who asked for a lane, as the wrapped transport knows it.
struct LanePeer {
  std::string name;
  bool is_client = false;  // IncomingCall::from_client
};

// The lane's half of a listener. Thread-safe.
class LaneEndpoint : public RefCounted {
 public:
  // Opens the sockets that the options allow; those that other hosts can reach only when a peer needs them, unless the
  // options ask for that kind. A socket that cannot be opened is logged and not offered.
  static RefPtr<LaneEndpoint> Open(LaneCore* core, const HostPort& address, Service* service);

  // Makes an offer for one connection, to be used soon. `peer` is who asked for it.
  LaneOffer MakeOffer(LanePeer peer, const LaneOfferRequest& request);
  // Returns the peer that the secret was made for. PERMISSION_DENIED if the secret is unknown, was used before or has
  // expired.
  StatusOr<LanePeer> UseSecret(const LaneSecret& secret);

  // Listener::Stop in two halves, around that of the wrapped listener. The first accepts no more connections and calls,
  // and cancels the open ones.
  void BeginStop();
  // The second waits until all calls are answered and no handler runs, and closes the connections.
  void FinishStop();

  // For links. Registers an accepted connection; false if there are too many, or the listener is stopping.
  [[nodiscard]] bool AddLink(ServerLink* link);
  void RemoveLink(ServerLink* link);
  std::vector<RefPtr<ServerLink>> links() const;
  // A call has arrived; false if the listener is stopping. The link must have it in its table by then, so that
  // BeginStop finds it there.
  [[nodiscard]] bool BeginCall() { return in_flight_.Enter(); }
  // The call was answered.
  void EndCall() { in_flight_.Leave(); }
  // A handler is about to run; false if it must not, because the listener is stopping.
  [[nodiscard]] bool BeginHandler() { return in_flight_.Enter(); }
  void EndHandler() { in_flight_.Leave(); }
  // Counts and logs a rejected connection.
  void Refused(const std::string& peer, const Status& why);

  Service* service() const { return service_; }
  LaneCore* core() const { return core_; }

 private:
  struct Secret {
    LanePeer peer;
    absl::Time expires;
  };

  LaneEndpoint(LaneCore* core, const HostPort& address, Service* service)
      : core_(core), address_(address), service_(service) {}
  ~LaneEndpoint() override;
  // Opens the sockets of the kinds that connect processes of one host, or of all others.
  void OpenMedia(bool within_host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Listen(Fd socket, const LaneMedium* medium) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LaneCore* const core_;
  const HostPort address_;
  Service* const service_;
  StopGate in_flight_;  // calls that are not answered, and handlers that run
  mutable Mutex mu_;
  LaneOffer offered_ ABSL_GUARDED_BY(mu_);        // without a secret
  bool on_network_ ABSL_GUARDED_BY(mu_) = false;  // OpenMedia was called for kinds that connect hosts
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<RefPtr<LaneAcceptor>> accepting_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Secret> secrets_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<ServerLink*> links_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
