// The server's side of a call over a lane.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_handover.h"
#include "millrace/net/lane/server_link.h"

namespace millrace::net {

// Thread-safe. Messages are queued until there is a handler, and then delivered by one thread at a time.
class ServedCall final : public RefCounted {
 public:
  ServedCall(RefPtr<ServerLink> link, const FrameHeader& header);

  // Serves the request, which has arrived.
  void Serve(Received request, EventThread* here);
  // Called by the link's reader. If true, the caller must call Deliver.
  [[nodiscard]] bool PutMessage(Received message);
  void Deliver(EventThread* here);
  // The caller has given up or is gone.
  void GiveUp();
  // The caller has given up, or the listener stops.
  void Cancel(const Status& why) { cancellation_.StartCancel(why); }

  // For the IncomingCall that the service holds.
  Bytes& request() { return request_; }
  absl::Time deadline() const { return deadline_; }
  const RefPtr<ServerLink>& link() const { return link_; }
  CancellationManager* cancellation() { return &cancellation_; }
  bool streams() const { return streams_; }
  // Entered by the threads that serve the request and deliver messages.
  const RefPtr<ThreadHandover>& handover() const { return handover_; }
  void OnMessage(MessageHandler handler);
  void Send(Bytes message);
  void Reply(StatusOr<Bytes> answer);

 private:
  ~ServedCall() override = default;
  // Called after a handler.
  void Flush();

  const RefPtr<ServerLink> link_;
  const uint64_t id_;
  const int method_;
  const bool streams_;
  const absl::Time deadline_;
  const RefPtr<ThreadHandover> handover_ = MakeRef<ThreadHandover>();
  Bytes request_;
  CancellationManager cancellation_;
  std::atomic<bool> given_up_{false};

  Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Received> inbox_ ABSL_GUARDED_BY(mu_);
  MessageHandler handler_ ABSL_GUARDED_BY(mu_);  // belongs to the delivering thread while there is one
};

}  // namespace millrace::net
