// A call within a process, for both ends.
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

class InprocCall final : public OutgoingStream {
 public:
  // `options` and `in_flight` are the transport's.
  InprocCall(const InprocTransportOptions& options, CallsInFlight* in_flight, std::string address, std::string method,
             Bytes request, absl::Duration timeout, Channel::Done done);

  // Makes it a streaming call. Call it before Start.
  void Stream(MessageHandler on_message);
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
  // The caller has given up.
  void GiveUp(Status why);
  // Only the first result is delivered. If `gave_up`, messages that have not been delivered are dropped.
  void Finish(StatusOr<Bytes> result, bool gave_up = false);
  void Deliver(StatusOr<Bytes> result);
  void EndServerPart();

  const InprocTransportOptions options_;  // a copy: the server may hold the call longer than the transport lives
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
