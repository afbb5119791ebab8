// The interface of transports, which carry messages between tasks.
//
// A transport makes calls: a request goes to a method at an address, and one answer or one error comes back. If both
// ends support it, a call can stream: both sides then send messages before the answer.
//
// Everything above (Master, Worker, liveness) uses only these few classes, and each folder beside this file implements
// them: grpc/ for real clusters and for TensorFlow's tasks, lane/ in addition to it for the messages that Millrace
// tasks exchange in every step, inproc/ within a process, sim/ on a virtual clock with faults determined by a seed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_handover.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

struct CallOptions {
  // The call fails with DEADLINE_EXCEEDED if there is no answer within this time.
  absl::Duration timeout = absl::InfiniteDuration();
  // A call that is made in every step. If a transport has several ways to the address, such a call takes the fastest.
  bool every_step = false;
  // The handover of the step that the call is made for. Threads that deliver the answer and messages enter it
  // meanwhile; a thread that waits for the answer (EventWait) may read it itself, if the transport supports that.
  RefPtr<ThreadHandover> handover = nullptr;
};

// A call in flight.
class OutgoingCall : public RefCounted {
 public:
  // Gives up the call: `done` soon gets CANCELLED, unless the answer has come, and the other side is notified.
  virtual void Cancel() = 0;
};

// A call in flight that streams.
class OutgoingStream : public OutgoingCall {
 public:
  // Sends a message after the request. Messages arrive in the order in which they were sent; after the end of the call
  // they are dropped. Non-blocking.
  virtual void Send(Bytes message) = 0;
};

using CallDone = absl::AnyInvocable<void(StatusOr<Bytes>)>;
using MessageHandler = absl::AnyInvocable<void(Bytes)>;

// Implemented by a channel whose calls can stream. Thread-safe; lives as long as the channel.
class StreamingChannel {
 public:
  // As Channel::Call, but both sides may send messages before the answer. `on_message` gets the other side's messages
  // in order, one at a time, and all before `done`. UNAVAILABLE if the streaming connection has been lost.
  virtual RefPtr<OutgoingStream> Stream(const std::string& method, Bytes request, const CallOptions& options,
                                        MessageHandler on_message, CallDone done) = 0;

 protected:
  ~StreamingChannel() = default;
};

// Makes calls to one address. Connects on first use, and reconnects after the connection is lost. Thread-safe.
class Channel {
 public:
  using Done = CallDone;

  virtual ~Channel() = default;
  // Calls `done` exactly once, on any thread, perhaps before returning. `method` is "/package.Service/Method". It gets
  // UNAVAILABLE immediately if the address refuses or the connection breaks; errors of the other side are passed on
  // unchanged.
  virtual RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options,
                                    Done done) = 0;
  // Establishes the fast path for calls with every_step, if the transport has to negotiate one. Calls `done` once, on
  // any thread, when the path is ready or cannot be established for now. Optional: without it the first calls may take
  // a slower path than later ones.
  virtual void Prepare(absl::AnyInvocable<void()> done) { done(); }
  // Null while calls cannot stream: always if the transport does not support it, otherwise until there is a connection
  // that does.
  virtual StreamingChannel* streaming() { return nullptr; }
  const std::string& address() const { return address_; }

 protected:
  explicit Channel(std::string address) : address_(std::move(address)) {}

 private:
  const std::string address_;
};

// The messages of a call that has arrived and streams. Thread-safe.
class IncomingStream {
 public:
  // Sets the handler of the caller's messages, at most once. It is called in order, one message at a time, perhaps
  // before OnMessage returns, and not after the answer.
  virtual void OnMessage(MessageHandler handler) = 0;
  // Sends a message to the caller, before the answer; dropped if the caller has given up. Non-blocking.
  virtual void Send(Bytes message) = 0;

 protected:
  ~IncomingStream() = default;
};

// A call that has arrived.
class IncomingCall {
 public:
  virtual ~IncomingCall() = default;
  // May be moved from.
  virtual Bytes& request() = 0;
  // When the caller gives up; InfiniteFuture if never.
  virtual absl::Time deadline() const = 0;
  // The caller's name for messages: "ipv4:127.0.0.1:40000".
  virtual std::string peer() const = 0;
  // A number of the connection that it came over, which no other connection of this process ever has; 0 if the
  // transport does not know it. Cheaper than comparing names.
  virtual uint64_t connection() const { return 0; }
  // Whether the caller has proven to be a client rather than a task (net/tls/certificate_role.h). False without TLS.
  virtual bool from_client() const { return false; }
  // Cancelled when the caller has given up or is gone, or when the listener stops.
  virtual CancellationManager* cancellation() = 0;
  // Call it within OnCall before long work (some 100 us or more) on its thread: another thread then takes over polling
  // immediately, instead of after a moment. An optimisation; correctness does not depend on it.
  virtual void RunsLong() {}
  // The handover that the transport's threads have entered while they deliver the call and its messages, for code that
  // works on the call. Null if they have nothing to hand over.
  virtual RefPtr<ThreadHandover> handover() { return nullptr; }
  // Whether the answer may be larger than 2 GB.
  virtual bool takes_large_answers() const { return false; }
  // The call's messages if the caller used StreamingChannel::Stream; otherwise null. Lives as long as the call.
  virtual IncomingStream* stream() { return nullptr; }
  // Answers the call; must be called exactly once. An error reaches the caller with its code and message.
  virtual void Reply(StatusOr<Bytes> answer) = 0;
  // Whether Reply has been called.
  virtual bool answered() const = 0;
};

// The methods that a listener serves.
class Service {
 public:
  virtual ~Service() = default;
  // The full names of the methods; constant.
  virtual const std::vector<std::string>& methods() const = 0;
  // `method` is an index into methods(). Must not block: it answers immediately, or keeps the call and answers later.
  // Called on any thread and concurrently. Calls of methods that are not listed get UNIMPLEMENTED from the transport.
  virtual void OnCall(int method, std::shared_ptr<IncomingCall> call) = 0;
};

class Listener {
 public:
  // Calls Stop.
  virtual ~Listener() = default;
  // The port that was bound, also if port 0 was requested.
  virtual int port() const = 0;
  // Frees the port, cancels the calls that are being served, and returns when all of them are answered and no OnCall is
  // running.
  virtual void Stop() = 0;
};

// The connection of a transport to or from a peer, and its traffic.
struct PeerStatus {
  std::string peer;  // the address of a channel, or the caller
  bool outgoing = false;
  std::string kind;            // "shm", "tcp", "grpc"
  std::string why_not_better;  // why it is not a faster kind; empty: it is the fastest
  // Counted for lanes only.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t calls = 0;
};

struct TransportStatus {
  std::vector<PeerStatus> peers;
  // Connections from strangers, or with malformed data.
  uint64_t refused_connections = 0;
  // Connections that others have made to this task, and those that were closed at once because there were too many.
  int64_t incoming_connections = 0;
  uint64_t excess_connections = 0;
  std::string last_excess = {};  // who, and why; empty if there was none
  // Blocks of received memory that are still referenced.
  int64_t received_blocks = 0;
};

// Thread-safe. Must outlive its channels and listeners.
class Transport {
 public:
  virtual ~Transport() = default;
  // `address` is "host:port". Channels to one address share a connection.
  virtual std::shared_ptr<Channel> Connect(const std::string& address) = 0;
  // Serves `service`, which must outlive the listener, at "host:port". A loopback host binds to loopback only, any
  // other host to all interfaces. UNAVAILABLE, or ALREADY_EXISTS if the port is taken, names the address and the
  // reason.
  virtual StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) = 0;
  // Empty if the transport has only one way to a peer.
  virtual TransportStatus status() { return {}; }
};

}  // namespace millrace::net
