// A call over the simulated network: the caller's end and the server's end. There are two of the latter if the request
// arrived twice.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "millrace/net/sim/state.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// One arrival of a request at a server. Lives until it is answered and released by the service.
class SimServedCall final : public IncomingCall,
                            public IncomingStream,
                            public std::enable_shared_from_this<SimServedCall> {
 public:
  SimServedCall(std::shared_ptr<SimNetwork::State> state, std::shared_ptr<SimEndpoint> endpoint, RefPtr<SimCall> call,
                Bytes request);
  ~SimServedCall() override;

  Bytes& request() override { return request_; }
  absl::Time deadline() const override;
  std::string peer() const override;
  CancellationManager* cancellation() override { return &cancellation_; }
  IncomingStream* stream() override;
  void OnMessage(MessageHandler handler) override;
  void Send(Bytes message) override;
  void Reply(StatusOr<Bytes> answer) override;
  bool answered() const override { return answered_; }
  void Take(Bytes message);

 private:
  const std::shared_ptr<SimNetwork::State> state_;
  const std::shared_ptr<SimEndpoint> endpoint_;
  const RefPtr<SimCall> call_;
  const int64_t number_;
  Bytes request_;
  CancellationManager cancellation_;
  bool answered_ = false;
  std::deque<Bytes> early_;  // messages before there is a handler
  std::shared_ptr<MessageHandler> on_message_;
};

class SimCall final : public OutgoingStream {
 public:
  SimCall(std::shared_ptr<SimNetwork::State> state, std::string client, std::string address, std::string method,
          absl::Duration timeout, Channel::Done done);

  // Makes it a streaming call. Call it before Start.
  void Stream(MessageHandler on_message);
  void Start(Bytes request);
  void Cancel() override;
  void Send(Bytes message) override;
  // Resets the connection because `host` died.
  void Reset(const std::string& host);
  // Ends the call immediately on behalf of the caller.
  void Abandon();
  // The network is being destroyed: drops messages in transit.
  void DropWhatIsOnTheWay();

  int64_t id() const { return id_; }
  const std::string& client() const { return client_; }
  // The host that listened at the address last; empty if none ever did.
  const std::string& server() const { return server_; }
  absl::Time deadline() const { return deadline_; }  // in true time
  bool streams() const { return streams_; }
  void SendAnswer(StatusOr<Bytes> answer);
  void SendToCaller(Bytes message);

 private:
  // The messages of a streaming call in transit. Each arrival event delivers the first of them.
  struct Direction {
    std::deque<std::function<void()>> on_the_way;
    bool stalled = false;  // a message was lost, so nothing after it arrives
  };

  ~SimCall() override;
  void Transmit(SimMessage::Kind kind, bool to_server, size_t bytes, std::function<void()> deliver);
  void Arrive(const Bytes& request);
  void GiveUp(Status why);
  void Break();
  void CancelServed(Status why);
  // The caller has its answer, so further copies of its request need not be served.
  void LetGoOfCopies();
  void Finish(StatusOr<Bytes> result);

  const std::shared_ptr<SimNetwork::State> state_;
  const int64_t id_;
  const std::string client_;
  const std::string address_;
  const std::string method_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  std::string server_;
  Channel::Done done_;
  bool finished_ = false;   // the caller has its answer
  bool broken_ = false;     // the connection is broken: nothing arrives any more
  bool answered_ = false;   // an answer came, perhaps too late
  bool cancelled_ = false;  // the server was notified that the caller gave up
  SimEventLoop::EventId timer_ = 0;
  std::vector<std::weak_ptr<SimServedCall>> served_;
  bool streams_ = false;
  std::shared_ptr<MessageHandler> on_message_;  // until the caller has its answer
  Direction to_server_, to_caller_;
};

}  // namespace millrace::net
