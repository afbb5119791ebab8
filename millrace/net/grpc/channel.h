// A Channel over gRPC, and the calls on it.
#pragma once

#include <grpc/grpc.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/calls_in_flight.h"
#include "millrace/net/grpc/completion_queue.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"

namespace millrace::net {

class GrpcOutgoingCall;

// A gRPC channel: a connection that reconnects, and the calls in flight on it. Thread-safe.
class GrpcConnection {
 public:
  GrpcConnection(const std::string& address, const TlsCredentials* tls);
  ~GrpcConnection();
  grpc_channel* get() const { return channel_; }

  void Add(GrpcOutgoingCall* call);
  enum class CallEnd {
    kAnswered,  // by the peer, with whatever result
    kGivenUp,   // by the caller: its deadline has passed, or it was cancelled
    kFailed,
  };
  void Remove(GrpcOutgoingCall* call, CallEnd how);
  // Besides probes.
  bool has_calls() const;
  // Whether a call was answered since the last time this was called.
  bool TakeHeard() { return heard_.exchange(false, std::memory_order_relaxed); }
  // Likewise for calls that were given up.
  bool TakeGivenUp() { return given_up_.exchange(false, std::memory_order_relaxed); }
  // Ends every call in flight with UNAVAILABLE.
  void Abandon();

 private:
  grpc_channel* channel_;
  std::atomic<bool> heard_{false};
  std::atomic<bool> given_up_{false};
  mutable Mutex mu_;
  absl::flat_hash_set<GrpcOutgoingCall*> calls_ ABSL_GUARDED_BY(mu_);
  size_t probes_ ABSL_GUARDED_BY(mu_) = 0;  // of calls_
};

// What a transport's channels share. Outlives them.
struct GrpcChannelContext {
  std::shared_ptr<const TlsCredentials> tls;
  CompletionQueue* queue;
  CallsInFlight* in_flight;
  std::function<void()> poke;  // calls GrpcChannel::Tick periodically from now on, until no channel needs it; cheap
};

// A connection can go silent without ending: a firewall forgets it, a proxy on the way hangs. So when calls have gone
// unanswered for a while, the peer is probed by a call of a method that no server has, which every server refuses at
// once; if that is not answered either but a probe over a new connection is, the new connection replaces the old one,
// and the calls on the old one fail. A peer that answers on neither is left to its callers' liveness checks.
class GrpcChannel final : public Channel, public std::enable_shared_from_this<GrpcChannel> {
 public:
  // Ticks without an answer before the peer is probed, and before that is done over a new connection.
  static constexpr int kTicksToProbe = 5;
  static constexpr int kTicksToReconnect = 8;

  GrpcChannel(std::string address, const GrpcChannelContext* context);

  RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) override;

  // A call could not be made on `connection`, so the next one reconnects immediately. gRPC by itself would keep failing
  // calls with its last error for up to a second, although the peer may be back.
  void OnUnavailable(const GrpcConnection* connection);
  bool secure() const { return context_->tls != nullptr; }

  // Checks for silence. Time is counted in ticks, so a process that was suspended itself does not blame its peers.
  // Returns false if there is nothing to watch until the next call.
  bool Tick();

 private:
  // The next connection, while it is being tried.
  struct Candidate {
    std::shared_ptr<GrpcConnection> connection;
    int ticks = 0;          // since it was tried
    int answered_for = -1;  // ticks since its probe was answered; negative: not yet
  };

  std::shared_ptr<GrpcConnection> Connection();
  std::shared_ptr<GrpcConnection> NewConnection() const;
  void Probe(std::shared_ptr<GrpcConnection> connection, bool candidate);
  void OnCandidateAnswer(const GrpcConnection* connection);

  const GrpcChannelContext* const context_;
  Mutex mu_;
  std::shared_ptr<GrpcConnection> connection_ ABSL_GUARDED_BY(mu_);
  int silent_ ABSL_GUARDED_BY(mu_) = 0;  // ticks in which calls were in flight and nothing was heard
  Candidate candidate_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
