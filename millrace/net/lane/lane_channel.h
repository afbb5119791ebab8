// A channel that uses a lane when there is one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/lane/client_link.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/transport.h"

namespace millrace::net {

inline constexpr char kOfferMethod[] = "/millrace.LaneService/Offer";

// Thread-safe.
class LaneChannel final : public Channel, public StreamingChannel, public std::enable_shared_from_this<LaneChannel> {
 public:
  // `dialers` runs the handshakes; it is destroyed before `core`.
  LaneChannel(LaneCore* core, ThreadGroup* dialers, std::shared_ptr<Channel> setup);
  ~LaneChannel() override;

  RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) override;
  void Prepare(absl::AnyInvocable<void()> done) override;
  // While there is a lane.
  StreamingChannel* streaming() override;
  RefPtr<OutgoingStream> Stream(const std::string& method, Bytes request, const CallOptions& options,
                                MessageHandler on_message, CallDone done) override;

  PeerStatus status() const;
  // Called when the transport is destroyed: no more handshakes.
  void Close();

 private:
  // The lane, if there is one; otherwise starts to establish one.
  RefPtr<ClientLink> Link();
  void AskForOffer();
  void OnOffer(StatusOr<Bytes> answer);
  // Runs on a thread of its own.
  void Dial(const LaneOffer& offer);
  void Up(RefPtr<ClientLink> link);
  void Down(const Status& why);
  // There is no lane for now; schedules the next attempt. `worth_a_word`: logs the reason.
  void Failed(const Status& why, bool worth_a_word);
  // Completes pending Prepare calls: there is a lane, or there will be none for now, or it takes too long.
  void EndPreparations();

  LaneCore* const core_;
  ThreadGroup* const dialers_;
  const std::shared_ptr<Channel> setup_;
  const std::shared_ptr<PeerCounters> counters_ = std::make_shared<PeerCounters>();
  mutable Mutex mu_;
  RefPtr<ClientLink> link_ ABSL_GUARDED_BY(mu_);
  bool dialing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<absl::AnyInvocable<void()>> preparing_ ABSL_GUARDED_BY(mu_);
  absl::Time next_attempt_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration retry_ ABSL_GUARDED_BY(mu_);
  std::string why_ ABSL_GUARDED_BY(mu_);     // why there is no lane, or no faster one
  std::string logged_ ABSL_GUARDED_BY(mu_);  // the last reason that was logged
};

}  // namespace millrace::net
