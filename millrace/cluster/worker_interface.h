// A task's worker as masters and other workers see it: in this process or elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/cluster/codec.h"
#include "millrace/net/transport.h"

namespace millrace {

// How long a caller waits and how it takes a call back.
struct CallControl {
  absl::Duration timeout = absl::InfiniteDuration();
  CancellationManager* cancellation = nullptr;  // outlives the call; may be null
  std::shared_ptr<void> owner = nullptr;        // keeps `cancellation` alive; what runs a step needs it
  net::IncomingCall* from = nullptr;            // as `cancellation`, and told before long work; null: from this process
};

// Thread-safe. Every method calls `done` exactly once, on any thread, perhaps before it returns.
class WorkerInterface {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  virtual ~WorkerInterface() = default;
  virtual void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) = 0;
  virtual void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request, DoneStatus done) = 0;
  virtual void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) = 0;
  virtual void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                             Done<pb::RegisterGraphResponse> done) = 0;
  virtual void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) = 0;
  // A step's failure is in the answer's status; an error of the call itself is `done`'s.
  virtual void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) = 0;
  // Makes ready what calls of steps take (net::Channel::Prepare); then calls `done`.
  virtual void Prepare(absl::AnyInvocable<void()> done) { done(); }
  // Whether StreamGraph works now.
  virtual bool streams() const { return false; }
  // RunGraph as a call that streams: the request is a StepStart, the answer a StepEnd, and the messages between them are tensors (step_wire.h).
  virtual RefPtr<net::OutgoingCall> StreamGraph(const CallControl& control, net::Bytes request, absl::AnyInvocable<void(net::Bytes)> on_message,
                                                Done<net::Bytes> done) {
    done(Unimplemented("StreamGraph"));
    return nullptr;
  }
  virtual void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) = 0;
  virtual void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) = 0;
  virtual void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key, Done<RendezvousItem> done) = 0;
  // Several tensors of a step once all of them are there, in the order of their keys: only for those that cannot keep each other waiting
  // (group_receives.h). Millrace's own: not for peers of other kinds.
  virtual void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys, Done<std::vector<RendezvousItem>> done) {
    done(Unimplemented("RecvTensors"));
  }
};

}  // namespace millrace
