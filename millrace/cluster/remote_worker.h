// A worker in another process.
#pragma once

#include <memory>

#include "millrace/cluster/watched_channel.h"
#include "millrace/cluster/worker_interface.h"
#include "millrace/net/transport.h"

namespace millrace {

// Speaks tensorflow.WorkerService over the channel. Errors of the transport name the task. Made by std::make_shared: a call in flight
// keeps it alive.
class RemoteWorker : public WorkerInterface, public std::enable_shared_from_this<RemoteWorker> {
 public:
  // What a step waits for is watched by whoever runs the step; calls that make sessions and graphs, which may take long at a
  // peer that is well, are watched here as `watch` says.
  RemoteWorker(std::string task, std::shared_ptr<net::Channel> channel, const WatchOptions& watch)
      : task_(std::move(task)), channel_(std::move(channel)), watched_(WatchChannel(channel_, watch)) {}

  void GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) override;
  void CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request, DoneStatus done) override;
  void DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) override;
  void RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                     Done<pb::RegisterGraphResponse> done) override;
  void DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) override;
  void RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) override;
  void Prepare(absl::AnyInvocable<void()> done) override { channel_->Prepare(std::move(done)); }
  bool streams() const override { return channel_->streams(); }
  RefPtr<net::OutgoingCall> StreamGraph(const CallControl& control, net::Bytes request, absl::AnyInvocable<void(net::Bytes)> on_message,
                                        Done<net::Bytes> done) override;
  void CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) override;
  void CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) override;
  void RecvTensor(const CallControl& control, int64_t step_id, const std::string& key, Done<RendezvousItem> done) override;
  void RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys, Done<std::vector<RendezvousItem>> done) override;

  static constexpr char kRecvTensorsMethod[] = "/millrace.WorkerService/RecvTensors";

 private:
  void Call(const std::string& method, net::Bytes request, const CallControl& control, net::Channel::Done done, bool every_step = false) {
    CallOn(channel_.get(), method, std::move(request), control, std::move(done), every_step);
  }
  void CallOn(net::Channel* channel, const std::string& method, net::Bytes request, const CallControl& control,
              net::Channel::Done done, bool every_step = false);
  Status Named(const Status& status, absl::string_view method) const;

  const std::string task_;
  const std::shared_ptr<net::Channel> channel_;
  const std::shared_ptr<net::Channel> watched_;
};

// Makes one call that `control` can take back: for whoever talks to a channel itself.
void CallWithControl(net::Channel* channel, const std::string& method, net::Bytes request, const CallControl& control,
                     net::Channel::Done done, bool every_step = false);

// An error that only passes on what happened elsewhere in the same step. Others in the step know better, and their word counts.
// TensorFlow's mark, so that mixed clusters agree.
Status MarkDerived(const Status& status);
bool IsDerived(const Status& status);
Status WithoutDerivedMark(const Status& status);

}  // namespace millrace
