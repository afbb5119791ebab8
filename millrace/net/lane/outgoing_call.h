// The caller's side of a call over a lane.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/net/lane/frame.h"
#include "millrace/net/lane/link.h"
#include "millrace/net/transport.h"

namespace millrace::net {

class ClientLink;

// Thread-safe. Messages and the answer are delivered by one thread at a time: the one that put something into the inbox
// while no other thread was delivering.
class LaneOutgoingCall final : public OutgoingStream {
 public:
  // `method` belongs to the link. A call that does not stream has no `on_message`.
  LaneOutgoingCall(RefPtr<ClientLink> link, std::shared_ptr<Channel> channel, const std::string& method,
                   const CallOptions& options, MessageHandler on_message, Channel::Done done);

  // Sets its number in the link's table; must be called first.
  void set_id(uint64_t id) { id_ = id; }
  void Start(int method, bool streams, Bytes request);
  // Called instead of Start if the transport is being destroyed.
  void Refuse();
  void Cancel() override;
  void Send(Bytes message) override;

  // Called by the link's reader. If true, the caller must call Deliver.
  [[nodiscard]] bool PutMessage(Received message);
  [[nodiscard]] bool PutAnswer(Received message);
  [[nodiscard]] bool PutError(Status status);
  void Deliver(EventThread* here);
  // Whether the calling thread, `here`, may deliver: it waits for this answer itself, or it is a serving thread.
  bool MayDeliverOn(const EventThread& here) const {
    return !here.awaits_answer() || (handover_ && handover_->Here() == &here);
  }

  // Ends the call, unless its answer has come. What has not been delivered is dropped. Done runs on a thread of the
  // lane.
  void End(Status why);

 private:
  struct Arrival {
    Received message;
    Status status;
    bool last = false;
  };

  ~LaneOutgoingCall() override = default;
  bool Put(Arrival arrival);
  void Finish(StatusOr<Bytes> result);
  // Tells the other side that the caller has given up.
  void TellGivenUp();
  // The calling thread sends something: if it awaits the answer it watches the link.
  void WatchLink();

  const RefPtr<ClientLink> link_;
  std::shared_ptr<Channel> channel_;  // until the call is over
  const std::string& method_;
  const absl::Duration timeout_;
  const RefPtr<ThreadHandover> handover_;  // of the step that it was made for; may be null
  uint64_t id_ = 0;
  MessageHandler on_message_;
  Channel::Done done_;

  Mutex mu_;
  bool sent_ ABSL_GUARDED_BY(mu_) = false;        // the call was given to the link, so that messages follow it
  bool ended_ ABSL_GUARDED_BY(mu_) = false;       // the last arrival is or was in the inbox
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;  // a thread is delivering or about to
  std::list<Arrival> inbox_ ABSL_GUARDED_BY(mu_);
  bool has_deadline_ ABSL_GUARDED_BY(mu_) = false;
  LaneDeadlines::Id deadline_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
