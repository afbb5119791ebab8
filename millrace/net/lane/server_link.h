// A lane's connection, at the side that serves.
#pragma once

#include <string>

#include "millrace/net/lane/call_table.h"
#include "millrace/net/lane/endpoint.h"
#include "millrace/net/lane/link.h"

namespace millrace::net {

// Thread-safe. Refuses whoever does not say a right hello in time.
class ServerLink final : public LaneLink {
 public:
  // Takes an accepted socket over. `local`: a Unix socket.
  static void Start(RefPtr<LaneEndpoint> endpoint, Fd fd, bool local);

  const RefPtr<LaneEndpoint>& endpoint() const { return endpoint_; }
  // "shm" or "tcp"; empty before the handshake is over.
  std::string kind() const;
  std::string why_not_better() const;
  // Who asked for the lane, as the wrapped transport named it.
  std::string peer() const;
  // False when the call has ended already.
  bool Forget(uint64_t call);
  // The listener stops: everything is answered.
  void SayBye();

  // For Start.
  ServerLink(RefPtr<LaneEndpoint> endpoint, Fd fd, bool local);

 private:
  enum class Stage { kHello, kReady, kOpen };

  ~ServerLink() override = default;
  Status OnFrame(Frame frame, Later* later) override;
  void OnOver(const Status& why) override;
  void RemoveHelloDeadline();
  Status OnHello(Frame frame);
  Status OnReady(const FrameHeader& header, Later* later);
  Status OnCall(Frame frame, Later* later);
  RefPtr<ServedCall> Find(uint64_t call);
  // Reads and handles what comes until the link is over, on a thread of its own.
  void Attend();

  const RefPtr<LaneEndpoint> endpoint_;
  const bool local_;
  // Of the thread that reads.
  LinkTerms agreed_;
  uint64_t newest_call_ = 0;
  std::atomic<int> callers_core_{-1};  // where it sent its last message from; negative: it did not say

  mutable Mutex calls_mu_;
  LaneDeadlines::Id hello_deadline_ ABSL_GUARDED_BY(calls_mu_);
  Stage stage_ ABSL_GUARDED_BY(calls_mu_) = Stage::kHello;
  bool closed_ ABSL_GUARDED_BY(calls_mu_) = false;
  std::string peer_ ABSL_GUARDED_BY(calls_mu_);
  std::string why_not_better_ ABSL_GUARDED_BY(calls_mu_);
  CallTable<ServedCall> calls_ ABSL_GUARDED_BY(calls_mu_);
};

}  // namespace millrace::net
