// How messages get from one task to another.
//
// A transport makes calls: a request goes to an address and a method there, one answer or one error comes back. Everything above
// (Master, Worker, liveness) is written against these few classes, and each folder beside this file implements them: grpc/ for real
// clusters and TensorFlow's peers, inproc/ within a process, sim/ on a virtual clock with faults from a seed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

struct CallOptions {
  // DEADLINE_EXCEEDED when there is no answer within this time.
  absl::Duration timeout = absl::InfiniteDuration();
  // One of those that every step makes: it takes the fastest way there is to the address, where a transport has several.
  bool every_step = false;
};

// A call in flight.
class OutgoingCall : public RefCounted {
 public:
  // The caller no longer wants the answer: `done` gets CANCELLED soon, unless the answer has come, and the other side is told.
  virtual void Cancel() = 0;
  // Of a call that streams: a message that follows the request. Messages arrive in the order in which they were sent; when the call is
  // over they are dropped. Does not wait.
  virtual void Send(Bytes message) {}
};

// To one address. Connects when first used and again after the connection is lost. Thread-safe.
class Channel {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<Bytes>)>;
  using OnMessage = absl::AnyInvocable<void(Bytes)>;

  virtual ~Channel() = default;
  // Calls `done` exactly once, on any thread, perhaps before returning. `method` is "/package.Service/Method". UNAVAILABLE at once
  // when the address refuses or the connection breaks; errors of the other side as it gave them.
  virtual RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) = 0;
  // Sees to it that what the calls of every step take is there, where the two ends have to agree on it first. Calls `done` once, on any thread:
  // when it is there, or is not to be had for now. Calls do not need it, but the first ones may go another way than later ones without it.
  virtual void Prepare(absl::AnyInvocable<void()> done) { done(); }
  // Whether Stream works now. That may change with each connection.
  virtual bool streams() const { return false; }
  // As Call, but both sides may send messages before the answer. `on_message` gets those of the other side in order, one at a time and all before
  // `done`. UNIMPLEMENTED where the transport has no such calls.
  virtual RefPtr<OutgoingCall> Stream(const std::string& method, Bytes request, const CallOptions& options, OnMessage on_message, Done done);
  const std::string& address() const { return address_; }

 protected:
  explicit Channel(std::string address) : address_(std::move(address)) {}

 private:
  const std::string address_;
};

// A call that has arrived.
class IncomingCall {
 public:
  virtual ~IncomingCall() = default;
  // May be moved out of.
  virtual Bytes& request() = 0;
  // When the caller gives up; InfiniteFuture for never.
  virtual absl::Time deadline() const = 0;
  // Who calls, for messages: "ipv4:127.0.0.1:40000".
  virtual std::string peer() const = 0;
  // Is cancelled when the caller has given up or is gone, and with the listener's end.
  virtual CancellationManager* cancellation() = 0;
  // Within OnCall, before work that takes long on its thread (some 100 us or more): others' events are then taken by another thread
  // at once. Without it they are too, after a moment. Not needed for being right.
  virtual void RunsLong() {}
  // Whether the answer may be larger than 2 GB.
  virtual bool takes_large_answers() const { return false; }
  // Whether the caller made it by Channel::Stream; if so, messages follow the request, and others may go before the answer.
  virtual bool streams() const { return false; }
  // Gets the caller's messages, in order and one at a time, perhaps before OnMessage returns; none after the answer. At most once.
  virtual void OnMessage(absl::AnyInvocable<void(Bytes)> handler) {}
  // To the caller, before the answer; dropped when nobody waits any more. Does not wait.
  virtual void Send(Bytes message) {}
  // Answers; exactly once. An error reaches the caller with its code and message.
  virtual void Reply(StatusOr<Bytes> answer) = 0;
};

// What a listener serves.
class Service {
 public:
  virtual ~Service() = default;
  // The full names of the methods; constant.
  virtual const std::vector<std::string>& methods() const = 0;
  // `method` is an index into methods(). Must not block: it answers at once or keeps the call and answers later. Called on any
  // thread, several calls at once. Others' calls of methods that are not listed get UNIMPLEMENTED.
  virtual void OnCall(int method, std::shared_ptr<IncomingCall> call) = 0;
};

class Listener {
 public:
  // As Stop.
  virtual ~Listener() = default;
  // The port that was bound, also when 0 was asked for.
  virtual int port() const = 0;
  // Frees the port, cancels the calls that are being served, and returns when each of them is answered and no OnCall runs.
  virtual void Stop() = 0;
};

// How a transport reaches a task, or is reached by it, and what it has carried.
struct PeerStatus {
  std::string peer;  // the address of a channel, or who called
  bool outgoing = false;
  std::string kind;            // "shm", "tcp", "grpc"
  std::string why_not_better;  // empty: it is the best there is
  // Over lanes only.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t calls = 0;
};

struct TransportStatus {
  std::vector<PeerStatus> peers;
  // Connections that did not belong here, or that sent what nobody sends.
  uint64_t refused_connections = 0;
  // Blocks of memory that hold what was received and is not let go yet.
  int64_t received_blocks = 0;
};

// Thread-safe. Outlives its channels and listeners.
class Transport {
 public:
  virtual ~Transport() = default;
  // "host:port". Channels to one address share a connection.
  virtual std::shared_ptr<Channel> Connect(const std::string& address) = 0;
  // Serves `service`, which outlives the listener, at "host:port". A loopback host means loopback only, any other all interfaces.
  // UNAVAILABLE (ALREADY_EXISTS when the port is taken) says which address and why.
  virtual StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) = 0;
  // Empty where there is one way only.
  virtual TransportStatus status() { return {}; }
};

}  // namespace millrace::net
