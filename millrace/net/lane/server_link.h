// The serving side of a lane's connection.
#pragma once

#include <string>

#include "millrace/net/lane/call_table.h"
#include "millrace/net/lane/endpoint.h"
#include "millrace/net/lane/link.h"

namespace millrace::net {

class ServedCall;

// Thread-safe. A peer that does not complete the handshake in time is disconnected.
class ServerLink final : public LaneLink {
 public:
  // Takes over a socket that was accepted at a listener of `medium`.
  static void Start(RefPtr<LaneEndpoint> endpoint, Fd fd, const LaneMedium* medium);

  const RefPtr<LaneEndpoint>& endpoint() const { return endpoint_; }
  // "shm" or "tcp"; empty before the handshake is complete.
  std::string kind() const;
  std::string why_not_better() const;
  // The peer that asked for the lane, as the wrapped transport named it.
  std::string peer() const;
  // See IncomingCall::connection.
  uint64_t connection() const { return connection_; }
  // See IncomingCall::from_client.
  bool from_client() const { return from_client_.load(std::memory_order_relaxed); }
  // Returns false if the call has ended already.
  bool Forget(uint64_t call);
  // Called when the listener stops.
  void CancelCalls(const Status& why);
  // Called when the listener stops and all calls are answered.
  void SayBye();

  // For Start.
  ServerLink(RefPtr<LaneEndpoint> endpoint, Fd fd, const LaneMedium* medium);

 private:
  enum class Stage { kHello, kReady, kOpen };

  ~ServerLink() override = default;
  Status OnFrame(Frame frame, EventThread* here, Later* later) override;
  void OnOver(const Status& why) override;
  void RemoveHelloDeadline();
  Status OnHello(Frame frame);
  Status OnReady(const FrameHeader& header, Later* later);
  Status OnCall(Frame frame, Later* later);
  RefPtr<ServedCall> Find(uint64_t call);
  // The body of a dedicated thread, which reads and handles frames until the link is over.
  void Attend(EventThread* here);

  const RefPtr<LaneEndpoint> endpoint_;
  const LaneMedium* const medium_;
  const uint64_t connection_;
  // Used by the reading thread only.
  LinkTerms agreed_;
  uint64_t newest_call_ = 0;
  std::atomic<bool> from_client_{false};  // constant after the handshake
  std::atomic<int> callers_core_{-1};     // the core that the caller sent its last message from; negative: unknown

  mutable Mutex calls_mu_;
  LaneDeadlines::Id hello_deadline_ ABSL_GUARDED_BY(calls_mu_);
  Stage stage_ ABSL_GUARDED_BY(calls_mu_) = Stage::kHello;
  bool closed_ ABSL_GUARDED_BY(calls_mu_) = false;
  std::string peer_ ABSL_GUARDED_BY(calls_mu_);
  std::string why_not_better_ ABSL_GUARDED_BY(calls_mu_);
  CallTable<ServedCall> calls_ ABSL_GUARDED_BY(calls_mu_);
};

}  // namespace millrace::net
