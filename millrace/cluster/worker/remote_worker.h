// A worker in another process.
#pragma once

#include <memory>

#include "millrace/cluster/client/watched_channel.h"
#include "millrace/cluster/worker/worker_interface.h"
#include "millrace/net/transport.h"

namespace millrace {

// Calls tensorflow.WorkerService over the channel. Transport errors name the task. Held by shared_ptr: a call in flight
// keeps it alive.
class RemoteWorker : public WorkerInterface, public StreamingWorker, public std::enable_shared_from_this<RemoteWorker> {
 public:
  // `watch` applies to the calls that create sessions and register graphs, which may take long at a healthy peer. The
  // calls of a step are monitored by the step's owner (LivenessMonitor).
  RemoteWorker(std::string task, std::shared_ptr<net::Channel> channel, const WatchOptions& watch)
      : task_(std::move(task)), channel_(std::move(channel)), watched_(WatchChannel(channel_, watch)) {}

  void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) override;
  void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request,
                           DoneStatus done) override;
  void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) override;
  void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                     Done<pb::RegisterGraphResponse> done) override;
  void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) override;
  void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) override;
  void Prepare(absl::AnyInvocable<void()> done) override { channel_->Prepare(std::move(done)); }
  StreamingWorker* streaming() override { return channel_->streaming() != nullptr ? this : nullptr; }
  RefPtr<net::OutgoingStream> StreamGraph(const CallControl& control, net::Bytes request,
                                          net::MessageHandler on_message, net::CallDone done) override;
  void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) override;
  void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) override;
  void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key,
                  Done<RendezvousItem> done) override;
  void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                   Done<std::vector<RendezvousItem>> done) override;
  void CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                     Done<pb::CompleteGroupResponse> done) override;
  void CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                        Done<pb::CompleteInstanceResponse> done) override;
  void GetStepSequence(const CallControl& control, const pb::GetStepSequenceRequest& request,
                       Done<pb::GetStepSequenceResponse> done) override;
  void RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) override;

  static constexpr char kRecvTensorsMethod[] = "/millrace.WorkerService/RecvTensors";

 private:
  void Call(const std::string& method, net::Bytes request, const CallControl& control, net::Channel::Done done,
            bool every_step = false) {
    CallOn(channel_.get(), method, std::move(request), control, std::move(done), every_step);
  }
  void CallOn(net::Channel* channel, const std::string& method, net::Bytes request, const CallControl& control,
              net::Channel::Done done, bool every_step = false);
  Status Named(const Status& status, absl::string_view method) const;

  const std::string task_;
  const std::shared_ptr<net::Channel> channel_;
  const std::shared_ptr<net::Channel> watched_;
};

// Makes one call that `control` can cancel, for code that uses a channel directly.
void CallWithControl(net::Channel* channel, const std::string& method, net::Bytes request, const CallControl& control,
                     net::Channel::Done done, bool every_step = false);

// Marks an error as derived: a consequence of a failure elsewhere in the same step, so that the original error is
// reported instead. Uses TensorFlow's mark, so that mixed clusters agree.
Status MarkDerived(const Status& status);
bool IsDerived(const Status& status);
Status WithoutDerivedMark(const Status& status);

}  // namespace millrace
