#include "millrace/cluster/worker/remote_worker.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/base/exception_status.h"
#include "millrace/cluster/blamed_task.h"
#include "millrace/cluster/collectives/buffer_codec.h"
#include "millrace/cluster/step/let_go.h"

namespace millrace {
namespace {

constexpr absl::string_view kDerivedMark = "[_Derived_]";

const std::string kService = "/tensorflow.WorkerService/";

// Shared by the answer and the cancellation; whichever comes first ends the call.
struct TakenBack : RefCounted {
  Mutex mu;
  RefPtr<net::OutgoingCall> call ABSL_GUARDED_BY(mu);
  bool cancelled ABSL_GUARDED_BY(mu) = false;
};

template <typename Response>
net::Channel::Done Parsed(WorkerInterface::Done<Response> done) {
  return [done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
    if (!answer.ok()) return done(answer.status());
    Response response;
    if (Status status = net::Parse(*answer, &response); !status.ok()) return done(status);
    done(std::move(response));
  };
}

net::Channel::Done StatusOnly(WorkerInterface::DoneStatus done) {
  return [done = std::move(done)](StatusOr<net::Bytes> answer) mutable { done(answer.status()); };
}

}  // namespace

namespace {

// Makes a call, by `start`, that `control` can cancel.
template <typename Start>
auto StartWithControl(const CallControl& control, net::Channel::Done done, const Start& start)
    -> decltype(start(std::move(done))) {
  CancellationManager* const cancellation = control.cancellation;
  if (cancellation == nullptr) return start(std::move(done));
  RefPtr<TakenBack> state = MakeRef<TakenBack>();
  const CancellationManager::Token token = cancellation->NewToken();
  const bool registered = cancellation->Register(token, [state] {
    RefPtr<net::OutgoingCall> call;
    {
      MutexLock lock(&state->mu);
      state->cancelled = true;
      call = state->call;
    }
    if (call) call->Cancel();
  });
  if (!registered) {
    done(cancellation->status());
    return nullptr;
  }
  auto call = start([cancellation, token, done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
    LetGo(cancellation, token);
    if (!answer.ok() && absl::IsCancelled(answer.status()) && cancellation->IsCancelled()) {
      return done(cancellation->status());
    }
    done(std::move(answer));
  });
  bool cancelled = false;
  {
    MutexLock lock(&state->mu);
    cancelled = state->cancelled;
    state->call = call;
  }
  if (cancelled && call) call->Cancel();
  return call;
}

}  // namespace

void CallWithControl(net::Channel* channel, const std::string& method, net::Bytes request, const CallControl& control,
                     net::Channel::Done done, bool every_step) {
  StartWithControl(control, std::move(done), [&](net::Channel::Done done) {
    return channel->Call(method, std::move(request),
                         {.timeout = control.timeout, .every_step = every_step, .handover = control.handover},
                         std::move(done));
  });
}

Status MarkDerived(const Status& status) {
  if (status.ok() || IsDerived(status)) return status;
  return WithPrefix(kDerivedMark, status);
}

bool IsDerived(const Status& status) { return absl::StartsWith(status.message(), kDerivedMark); }

Status WithoutDerivedMark(const Status& status) {
  return IsDerived(status) ? Status(status.code(), absl::StripPrefix(status.message(), kDerivedMark)) : status;
}

Status RemoteWorker::Named(const Status& status, absl::string_view method) const {
  if (status.ok() || absl::StrContains(status.message(), task_)) return status;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return BlameTask(Unavailable("task ", task_, " at ", channel_->address(), " cannot be reached (", method,
                                   "): ", status.message()),
                       task_);
    case absl::StatusCode::kDeadlineExceeded:
      return BlameTask(DeadlineExceeded("task ", task_, " at ", channel_->address(), " did not answer in time (",
                                        method, "): ", status.message()),
                       task_);
    case absl::StatusCode::kCancelled:
      return status;
    default:
      return WithPrefix(absl::StrCat("task ", task_, " at ", channel_->address(), " (", method, "): "), status);
  }
}

void RemoteWorker::CallOn(net::Channel* channel, const std::string& method, net::Bytes request,
                          const CallControl& control, net::Channel::Done done, bool every_step) {
  CallWithControl(
      channel, kService + method, std::move(request), control,
      [self = shared_from_this(), method, done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        if (!answer.ok()) return done(self->Named(answer.status(), method));
        done(std::move(answer));
      },
      every_step);
}

void RemoteWorker::GetStatus(const CallControl& control, Done<pb::GetStatusResponse> done) {
  Call("GetStatus", {}, control, Parsed<pb::GetStatusResponse>(std::move(done)));
}

void RemoteWorker::CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request,
                                       DoneStatus done) {
  CallOn(watched_.get(), "CreateWorkerSession", net::Serialize(request), control, StatusOnly(std::move(done)));
}

void RemoteWorker::DeleteWorkerSession(const CallControl& control, const std::string& session, DoneStatus done) {
  pb::DeleteWorkerSessionRequest request;
  request.set_session_handle(session);
  Call("DeleteWorkerSession", net::Serialize(request), control, StatusOnly(std::move(done)));
}

void RemoteWorker::RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                                 Done<pb::RegisterGraphResponse> done) {
  CallOn(watched_.get(), "RegisterGraph", net::Serialize(request), control,
         Parsed<pb::RegisterGraphResponse>(std::move(done)));
}

void RemoteWorker::DeregisterGraph(const CallControl& control, pb::DeregisterGraphRequest request, DoneStatus done) {
  Call("DeregisterGraph", net::Serialize(request), control, StatusOnly(std::move(done)));
}

void RemoteWorker::RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) {
  StatusOr<net::Bytes> request = EncodeRunGraph(call);
  if (!request.ok()) return done(request.status());
  Call(
      "RunGraph", *std::move(request), control,
      [done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        if (!answer.ok()) return done(answer.status());
        done(DecodeRunGraphAnswer(*answer));
      },
      /*every_step=*/true);
}

RefPtr<net::OutgoingStream> RemoteWorker::StreamGraph(const CallControl& control, net::Bytes request,
                                                      net::MessageHandler on_message, net::CallDone done) {
  static const std::string method = kService + "RunGraph";
  auto named = [self = shared_from_this(), done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
    if (!answer.ok()) return done(self->Named(answer.status(), "RunGraph"));
    done(std::move(answer));
  };
  net::StreamingChannel* const streaming = channel_->streaming();
  if (streaming == nullptr) {
    named(Unavailable("the connection over which calls could stream was lost"));
    return nullptr;
  }
  return StartWithControl(control, std::move(named), [&](net::CallDone done) {
    return streaming->Stream(method, std::move(request),
                             {.timeout = control.timeout, .every_step = true, .handover = control.handover},
                             std::move(on_message), std::move(done));
  });
}

void RemoteWorker::CleanupGraph(const CallControl& control, int64_t step_id, DoneStatus done) {
  pb::CleanupGraphRequest request;
  request.set_step_id(step_id);
  Call("CleanupGraph", net::Serialize(request), control, StatusOnly(std::move(done)), /*every_step=*/true);
}

void RemoteWorker::CleanupAll(const CallControl& control, std::vector<std::string> containers, DoneStatus done) {
  pb::CleanupAllRequest request;
  for (std::string& container : containers) request.add_container(std::move(container));
  CallOn(watched_.get(), "CleanupAll", net::Serialize(request), control, StatusOnly(std::move(done)));
}

void RemoteWorker::RecvTensor(const CallControl& control, int64_t step_id, const std::string& key,
                              Done<RendezvousItem> done) {
  pb::RecvTensorRequest request;
  request.set_step_id(step_id);
  request.set_rendezvous_key(key);
  Call(
      "RecvTensor", net::Serialize(request), control,
      [done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        if (!answer.ok()) return done(answer.status());
        done(CatchExceptions([&] { return DecodeRecvTensorAnswer(*answer, Allocator::Heap()); }));
      },
      /*every_step=*/true);
}

void RemoteWorker::RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                               Done<std::vector<RendezvousItem>> done) {
  StatusOr<net::Bytes> request = EncodeRecvTensors(step_id, keys);
  if (!request.ok()) return done(request.status());
  CallWithControl(
      channel_.get(), kRecvTensorsMethod, *std::move(request), control,
      [self = shared_from_this(), count = keys.size(), done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        if (!answer.ok()) return done(self->Named(answer.status(), "RecvTensors"));
        StatusOr<std::vector<RendezvousItem>> items =
            CatchExceptions([&] { return DecodeRecvTensorsAnswer(*answer, Allocator::Heap()); });
        if (items.ok() && items->size() != count) {
          return done(Internal(self->task_, " gave ", items->size(), " tensors for ", count, " keys"));
        }
        done(std::move(items));
      },
      /*every_step=*/true);
}

void RemoteWorker::CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                                 Done<pb::CompleteGroupResponse> done) {
  Call("CompleteGroup", net::Serialize(request), control, Parsed<pb::CompleteGroupResponse>(std::move(done)));
}

void RemoteWorker::CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                                    Done<pb::CompleteInstanceResponse> done) {
  Call("CompleteInstance", net::Serialize(request), control, Parsed<pb::CompleteInstanceResponse>(std::move(done)));
}

void RemoteWorker::GetStepSequence(const CallControl& control, const pb::GetStepSequenceRequest& request,
                                   Done<pb::GetStepSequenceResponse> done) {
  CallOn(watched_.get(), "GetStepSequence", net::Serialize(request), control,
         Parsed<pb::GetStepSequenceResponse>(std::move(done)));
}

void RemoteWorker::RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) {
  Call(
      "RecvBuf", net::Serialize(request), control,
      [done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        if (!answer.ok()) return done(answer.status());
        done(DecodeRecvBufResponse(*answer));
      },
      /*every_step=*/true);
}

}  // namespace millrace
