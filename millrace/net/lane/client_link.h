// The calling side of a lane's connection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/net/lane/call_table.h"
#include "millrace/net/lane/link.h"
#include "millrace/net/lane/medium.h"
#include "millrace/net/lane/outgoing_call.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

// Thread-safe.
class ClientLink final : public LaneLink {
 public:
  // Connects according to the offer and performs the handshake. Blocks until `deadline`, or until the transport is
  // destroyed. `on_over` is called once, without locks, when the returned link is over.
  static StatusOr<RefPtr<ClientLink>> Dial(LaneCore* core, const std::string& address, const LaneOffer& offer,
                                           absl::Time deadline, std::shared_ptr<PeerCounters> counters,
                                           std::function<void(const Status&)> on_over);

  const std::string& address() const { return address_; }
  const LaneMedium& medium() const { return *medium_; }
  // Why it is not a faster kind; empty if it is the fastest.
  const std::string& why_not_better() const { return why_not_better_; }
  // -1 if the other side has no such method.
  int MethodIndex(const std::string& method) const;

  // Whether a call may be made now; this may change at any time.
  bool takes_calls() const;
  // Null if the link is over; the arguments are left unchanged then.
  RefPtr<LaneOutgoingCall> Call(int method, Bytes& request, const CallOptions& options,
                                std::shared_ptr<Channel> channel, bool streams, MessageHandler& on_message,
                                Channel::Done& done);
  // Removes a call that has ended. Returns false if it was removed before.
  bool Forget(uint64_t call);

  // For Dial.
  ClientLink(LaneCore* core, DialledLane lane, std::shared_ptr<PeerCounters> counters, const std::string& address);

 private:
  ~ClientLink() override = default;
  Status ShakeHands(const LaneOffer& offer, absl::Time deadline);
  StatusOr<Frame> ReadFrame(absl::Time deadline);
  Status WriteAll(absl::string_view bytes, absl::Time deadline);
  Status OnFrame(Frame frame, EventThread* here, Later* later) override;
  void OnOver(const Status& why) override;
  // Fails all calls that are not answered.
  void FailCalls(const Status& why);

  const std::string address_;
  const LaneMedium* const medium_;
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
