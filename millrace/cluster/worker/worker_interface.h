// The interface of a worker for masters and other workers, whether it is in this process or another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/net/transport.h"
#include "millrace/proto/collective.pb.h"

namespace millrace {

// The limits of a call: its timeout and its cancellation.
struct CallControl {
  absl::Duration timeout = absl::InfiniteDuration();
  CancellationManager* cancellation = nullptr;  // must outlive the call; may be null
  std::shared_ptr<void> owner = nullptr;        // keeps `cancellation` alive; required by calls that run a step
  RefPtr<ThreadHandover> handover = nullptr;    // of the threads that work for the caller; may be null
  // The incoming call, whose RunsLong is called before long work; null if the caller is in this process.
  net::IncomingCall* from = nullptr;
};

// Implemented by a worker to which calls can stream (net::StreamingChannel).
class StreamingWorker {
 public:
  // RunGraph as a streaming call (a line): the request is a StepStart, the answer a StepEnd, and the messages between
  // them are tensors (step_wire.h). UNAVAILABLE if the streaming connection has been lost.
  virtual RefPtr<net::OutgoingStream> StreamGraph(const CallControl& control, net::Bytes request,
                                                  net::MessageHandler on_message, net::CallDone done) = 0;

 protected:
  ~StreamingWorker() = default;
};

// Thread-safe. Every method calls `done` exactly once, on any thread, possibly before it returns.
class WorkerInterface {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  virtual ~WorkerInterface() = default;
  virtual void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) = 0;
  virtual void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request,
                                   DoneStatus done) = 0;
  virtual void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) = 0;
  virtual void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                             Done<pb::RegisterGraphResponse> done) = 0;
  virtual void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) = 0;
  // A failure of the step is in the answer's status; `done` gets an error only if the call itself failed.
  virtual void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) = 0;
  // Sets up the fast path for the calls of steps (net::Channel::Prepare), then calls `done`.
  virtual void Prepare(absl::AnyInvocable<void()> done) { done(); }
  // Null while calls to it cannot stream. Lives as long as this object.
  virtual StreamingWorker* streaming() { return nullptr; }
  virtual void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) = 0;
  virtual void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) = 0;
  virtual void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key,
                          Done<RendezvousItem> done) = 0;
  // Returns several tensors of a step, in the order of their keys, once all of them exist: only for tensors that cannot
  // delay each other (group_receives.h). Not part of TensorFlow's protocol, so only Millrace tasks support it.
  virtual void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                           Done<std::vector<RendezvousItem>> done) {
    done(Unimplemented("RecvTensors"));
  }

  // The collective ops of graphs (cluster/collectives). A worker that forms groups is their leader: it answers the
  // first when the group is complete, the second when the instance is.
  virtual void CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                             Done<pb::CompleteGroupResponse> done) {
    done(Unimplemented("CompleteGroup"));
  }
  virtual void CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                                Done<pb::CompleteInstanceResponse> done) {
    done(Unimplemented("CompleteInstance"));
  }
  virtual void GetStepSequence(const CallControl& control, const pb::GetStepSequenceRequest& request,
                               Done<pb::GetStepSequenceResponse> done) {
    done(Unimplemented("GetStepSequence"));
  }
  // Returns the buffer once a device of the worker has offered it.
  virtual void RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) {
    done(Unimplemented("RecvBuf"));
  }
};

}  // namespace millrace
