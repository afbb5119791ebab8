// One call within a process, seen from both ends.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/net/calls_in_flight.h"
#include "millrace/net/inproc/endpoint.h"
#include "millrace/net/inproc/inproc_transport.h"
#include "millrace/net/inproc/ordered_messages.h"

namespace millrace::net {

class InprocCall final : public OutgoingCall {
 public:
  // `options` and `in_flight` are the transport's.
  InprocCall(const InprocTransportOptions& options, CallsInFlight* in_flight, std::string address, std::string method,
             Bytes request, absl::Duration timeout, Channel::Done done);

  // Before Start: the call streams.
  void Stream(Channel::OnMessage on_message);
  void Start();
  void Cancel() override;
  void Send(Bytes message) override;

  // For the server's end.
  Bytes& request() { return request_; }
  absl::Time deadline() const { return deadline_; }
  CancellationManager* cancellation() { return &cancellation_; }
  void Answer(StatusOr<Bytes> answer);
  bool streams() const { return streams_; }
  void OnMessage(OrderedMessages::Handler handler);
  void SendToCaller(Bytes message);

 private:
  ~InprocCall() override = default;
  void Serve(int method);
  // The caller wants no answer any more.
  void GiveUp(Status why);
  // The first result is the one that is delivered; with `gave_up` in the place of messages that are on the way.
  void Finish(StatusOr<Bytes> result, bool gave_up = false);
  void Deliver(StatusOr<Bytes> result);
  void EndServerPart();

  const InprocTransportOptions options_;  // its own: the server may hold the call longer than the caller its transport
  CallsInFlight* const in_flight_;
  const std::string address_;
  const std::string method_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  Bytes request_;
  Channel::Done done_;
  std::shared_ptr<InprocEndpoint> endpoint_;
  CancellationManager cancellation_;
  bool streams_ = false;
  OrderedMessages to_server_, to_caller_;
  std::atomic<TimerQueue::Id> timer_{0};
  std::atomic<bool> finished_{false};
  std::atomic<int> server_parts_{2};  // OnCall has returned, the answer is given
};

}  // namespace millrace::net
