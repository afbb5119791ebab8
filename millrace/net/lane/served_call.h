// A call over a lane, at its server.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/net/lane/server_link.h"

namespace millrace::net {

// Thread-safe. Messages wait for a handler; then one thread at a time delivers them.
class ServedCall final : public RefCounted {
 public:
  ServedCall(RefPtr<ServerLink> link, const FrameHeader& header);

  // The request is here: serves it.
  void Serve(Received request);
  // Of the link's reader. True: Deliver is to be called.
  [[nodiscard]] bool PutMessage(Received message);
  void Deliver();
  // The caller has given up or is gone.
  void GiveUp();
  // That, or the listener stops.
  void Cancel(const Status& why) { cancellation_.StartCancel(why); }

  // For the handle that the service has.
  Bytes& request() { return request_; }
  absl::Time deadline() const { return deadline_; }
  const RefPtr<ServerLink>& link() const { return link_; }
  CancellationManager* cancellation() { return &cancellation_; }
  bool streams() const { return streams_; }
  void OnMessage(absl::AnyInvocable<void(Bytes)> handler);
  void Send(Bytes message);
  void Reply(StatusOr<Bytes> answer);

 private:
  ~ServedCall() override = default;
  // After a handler.
  void Flush();

  const RefPtr<ServerLink> link_;
  const uint64_t id_;
  const int method_;
  const bool streams_;
  const absl::Time deadline_;
  Bytes request_;
  CancellationManager cancellation_;
  std::atomic<bool> given_up_{false};

  Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Received> inbox_ ABSL_GUARDED_BY(mu_);
  absl::AnyInvocable<void(Bytes)> handler_ ABSL_GUARDED_BY(mu_);  // the delivering thread's while there is one
};

}  // namespace millrace::net
