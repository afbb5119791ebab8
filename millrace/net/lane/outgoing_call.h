// A call over a lane, at its caller.
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

// Thread-safe. Messages and the answer are delivered by one thread at a time: the one that found the inbox filled and nobody at it.
class LaneOutgoingCall final : public OutgoingCall {
 public:
  // `method` is the link's. A call that does not stream has no `on_message`.
  LaneOutgoingCall(RefPtr<ClientLink> link, std::shared_ptr<Channel> channel, const std::string& method, absl::Duration timeout,
                   Channel::OnMessage on_message, Channel::Done done);

  // Its number in the link's table, before anything else.
  void set_id(uint64_t id) { id_ = id; }
  void Start(int method, bool streams, Bytes request);
  // In place of Start, when the transport ends.
  void Refuse();
  void Cancel() override;
  void Send(Bytes message) override;

  // Of the link's reader. True: Deliver is to be called.
  [[nodiscard]] bool PutMessage(Received message);
  [[nodiscard]] bool PutAnswer(Received message);
  [[nodiscard]] bool PutError(Status status);
  void Deliver();
  // By this thread, which waits for the answer itself or belongs to nobody.
  bool MayDeliverHere() const { return EventWait::Here() == caller_ || EventWait::Here() == nullptr; }

  // The call is over, unless its answer has come: what has not been delivered is dropped. Done runs on a thread of the lane.
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
  // As the end of the call, to the other side.
  void TellGivenUp();

  const RefPtr<ClientLink> link_;
  std::shared_ptr<Channel> channel_;  // until the call is over
  const std::string& method_;
  const absl::Duration timeout_;
  const EventWait* const caller_;  // on whose behalf it was made; perhaps gone
  uint64_t id_ = 0;
  Channel::OnMessage on_message_;
  Channel::Done done_;

  Mutex mu_;
  bool sent_ ABSL_GUARDED_BY(mu_) = false;        // to the link, so that what is sent now comes behind the call
  bool ended_ ABSL_GUARDED_BY(mu_) = false;       // the last arrival is or was in the inbox
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;  // a thread is at the inbox, or on its way
  std::list<Arrival> inbox_ ABSL_GUARDED_BY(mu_);
  bool has_deadline_ ABSL_GUARDED_BY(mu_) = false;
  LaneDeadlines::Id deadline_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
