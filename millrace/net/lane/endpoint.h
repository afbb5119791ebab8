// What listens for lanes: whom it lets in, and what it serves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/acceptor.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/hello.h"
#include "millrace/net/lane/sockets.h"
#include "millrace/net/transport.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

class ServedCall;
class ServerLink;

// The lane's half of a listener. Thread-safe.
class LaneEndpoint : public RefCounted {
 public:
  // Opens the sockets that the options allow; what cannot be opened is logged and not offered.
  static RefPtr<LaneEndpoint> Open(LaneCore* core, const HostPort& address, Service* service);

  // For one connection of whoever asked, soon. `peer` is who that is.
  LaneOffer MakeOffer(const std::string& peer);
  // Whom the secret was made for. PERMISSION_DENIED when it is none, or was used, or is too old.
  StatusOr<std::string> UseSecret(const LaneSecret& secret);

  // Listener::Stop in two halves, around that of the wrapped one: no more connections and calls, and those that are open are cancelled...
  void BeginStop();
  // ...and when all are answered and no handler runs, the connections end.
  void FinishStop();

  // For links. A connection was accepted; false: it is one too many, or the listener stops.
  [[nodiscard]] bool AddLink(ServerLink* link);
  void RemoveLink(ServerLink* link);
  std::vector<RefPtr<ServerLink>> links() const;
  // A call arrived; false: the listener stops.
  [[nodiscard]] bool BeginCall(ServedCall* call);
  // It was answered.
  void EndCall(ServedCall* call);
  // A handler begins; false: the listener stops, and it must not.
  [[nodiscard]] bool BeginHandler();
  void EndHandler();
  // A connection that did not belong here.
  void Refused(const std::string& peer, const Status& why);

  Service* service() const { return service_; }
  LaneCore* core() const { return core_; }

 private:
  struct Secret {
    std::string peer;
    absl::Time expires;
  };

  LaneEndpoint(LaneCore* core, Service* service) : core_(core), service_(service) {}
  ~LaneEndpoint() override;
  void Listen(Fd socket, bool local);

  LaneCore* const core_;
  Service* const service_;
  std::string unix_name_;
  int tcp_port_ = 0;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<RefPtr<LaneAcceptor>> accepting_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Secret> secrets_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<ServerLink*> links_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<ServedCall*> calls_ ABSL_GUARDED_BY(mu_);  // not answered
  int handlers_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::net
