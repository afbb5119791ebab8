// A lane's connection, at the side that calls.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/net/lane/call_table.h"
#include "millrace/net/lane/link.h"
#include "millrace/net/lane/outgoing_call.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

// Thread-safe.
class ClientLink final : public LaneLink {
 public:
  // Connects to where the offer says and shakes hands; waits until `deadline`, or until the transport ends. `on_over` is called once when
  // the link that was returned is over, without locks.
  static StatusOr<RefPtr<ClientLink>> Dial(LaneCore* core, const std::string& address, const LaneOffer& offer, absl::Time deadline,
                                           std::shared_ptr<PeerCounters> counters, std::function<void(const Status&)> on_over);

  const std::string& address() const { return address_; }
  // "shm" or "tcp", and what keeps it from being faster; empty: nothing.
  const std::string& kind() const { return kind_; }
  const std::string& why_not_better() const { return why_not_better_; }
  // -1: the other side has no such method.
  int MethodIndex(const std::string& method) const;

  // Whether a call may be made; another thread may change that at any time.
  bool takes_calls() const;
  // Null when the link is over; the arguments are then as they were.
  RefPtr<LaneOutgoingCall> Call(int method, Bytes& request, const CallOptions& options, std::shared_ptr<Channel> channel, bool streams,
                                Channel::OnMessage& on_message, Channel::Done& done);
  // Of a call that has ended. False when it was not known any more.
  bool Forget(uint64_t call);

  // For Dial.
  ClientLink(LaneCore* core, Fd fd, std::shared_ptr<PeerCounters> counters, const std::string& address);

 private:
  ~ClientLink() override = default;
  Status ShakeHands(const LaneOffer& offer, bool local, absl::Time deadline);
  StatusOr<Frame> ReadFrame(absl::Time deadline);
  Status WriteAll(absl::string_view bytes, absl::Time deadline);
  Status OnFrame(Frame frame, Later* later) override;
  void OnOver(const Status& why) override;
  // Everything that is not answered has failed.
  void FailCalls(const Status& why);

  const std::string address_;
  std::string kind_;
  std::string why_not_better_;
  std::vector<std::string> methods_;
  absl::flat_hash_map<std::string, int> method_index_;
  std::function<void(const Status&)> on_over_;

  mutable Mutex calls_mu_;
  bool closed_ ABSL_GUARDED_BY(calls_mu_) = false;
  uint64_t next_call_ ABSL_GUARDED_BY(calls_mu_) = 1;
  CallTable<LaneOutgoingCall> calls_ ABSL_GUARDED_BY(calls_mu_);
};

}  // namespace millrace::net
