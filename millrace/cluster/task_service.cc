#include "millrace/cluster/task_service.h"

#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/base/log.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/collectives/buffer_codec.h"
#include "millrace/cluster/worker/remote_worker.h"

namespace millrace {
namespace {

using Call = std::shared_ptr<net::IncomingCall>;

// Messages with a graph of at least this many bytes, or with this many tensors, take long to handle.
constexpr size_t kLargeGraph = 16 << 10;
constexpr size_t kLargeTensors = 1 << 20;

// Parses the request; if it is malformed, answers with the error.
template <typename Request>
bool ReadRequest(const Call& call, Request* request) {
  if (call->request().size() > kLargeGraph) call->RunsLong();
  Status status = net::Parse(call->request(), request);
  call->request() = net::Bytes();
  if (status.ok()) return true;
  call->Reply(std::move(status));
  return false;
}

template <typename Response>
void Reply(const Call& call, const StatusOr<Response>& response) {
  if (response.ok()) {
    call->Reply(net::Serialize(*response));
  } else {
    call->Reply(response.status());
  }
}

template <typename Response>
auto ReplyTo(Call call) {
  return [call = std::move(call)](StatusOr<Response> response) { Reply(call, response); };
}

// Most answers are empty and only acknowledge the call.
auto ReplyEmpty(Call call) {
  return [call = std::move(call)](const Status& status) {
    if (status.ok()) {
      call->Reply(net::Bytes());
    } else {
      call->Reply(status);
    }
  };
}

}  // namespace

TaskService::TaskService(std::shared_ptr<Master> master, std::shared_ptr<Worker> worker, Clock* clock)
    : master_(std::move(master)), worker_(std::move(worker)), clock_(clock), status_(master_, worker_, clock) {
  Add("MasterService/RunStep", &TaskService::RunStep);
  Add("MasterService/RunCallable", &TaskService::RunCallable);
  Add("MasterService/CreateSession", &TaskService::CreateSession);
  Add("MasterService/ExtendSession", &TaskService::ExtendSession);
  Add("MasterService/PartialRunSetup", &TaskService::PartialRunSetup);
  Add("MasterService/CloseSession", &TaskService::CloseSession);
  Add("MasterService/ListDevices", &TaskService::ListDevices);
  Add("MasterService/Reset", &TaskService::Reset);
  Add("MasterService/MakeCallable", &TaskService::MakeCallable);
  Add("MasterService/ReleaseCallable", &TaskService::ReleaseCallable);
  Add("WorkerService/GetStatus", &TaskService::GetStatus);
  AddForTasks("WorkerService/CreateWorkerSession", &TaskService::CreateWorkerSession);
  AddForTasks("WorkerService/DeleteWorkerSession", &TaskService::DeleteWorkerSession);
  AddForTasks("WorkerService/RegisterGraph", &TaskService::RegisterGraph);
  AddForTasks("WorkerService/DeregisterGraph", &TaskService::DeregisterGraph);
  AddForTasks("WorkerService/RunGraph", &TaskService::RunGraph);
  AddForTasks("WorkerService/CleanupGraph", &TaskService::CleanupGraph);
  AddForTasks("WorkerService/CleanupAll", &TaskService::CleanupAll);
  AddForTasks("WorkerService/RecvTensor", &TaskService::RecvTensor);
  AddForTasks("WorkerService/CompleteGroup", &TaskService::CompleteGroup);
  AddForTasks("WorkerService/CompleteInstance", &TaskService::CompleteInstance);
  AddForTasks("WorkerService/GetStepSequence", &TaskService::GetStepSequence);
  AddForTasks("WorkerService/RecvBuf", &TaskService::RecvBuf);
  AddForTasks("WorkerService/Logging", &TaskService::Logging);
  AddForTasks("WorkerService/Tracing", &TaskService::Tracing);
  AddMethod(std::string(RemoteWorker::kRecvTensorsMethod), &TaskService::RecvTensors, /*for_tasks=*/true);
  AddMethod(std::string(StatusService::kMethod), &TaskService::GetTaskStatus, /*for_tasks=*/false);
}

void TaskService::AddMethod(std::string method, Handler handler, bool for_tasks) {
  methods_.push_back(std::move(method));
  handlers_.push_back(handler);
  for_tasks_.push_back(for_tasks);
}

void TaskService::Add(const std::string& method, Handler handler) {
  AddMethod("/tensorflow." + method, handler, /*for_tasks=*/false);
}

void TaskService::AddForTasks(const std::string& method, Handler handler) {
  AddMethod("/tensorflow." + method, handler, /*for_tasks=*/true);
}

void TaskService::Add(net::Service* service) {
  for (size_t i = 0; i < service->methods().size(); ++i) {
    AddMethod(service->methods()[i], nullptr, /*for_tasks=*/true);
    foreign_.push_back({service, static_cast<int>(i)});
  }
}

void TaskService::OnCall(int method, Call call) {
  if (for_tasks_[method] && call->from_client()) {
    return call->Reply(absl::PermissionDeniedError(absl::StrCat(
        methods_[method], " is for the tasks of the cluster, and the caller's certificate is a client's")));
  }
  try {
    if (handlers_[method] == nullptr) {
      const Foreign& foreign = foreign_[method - (methods_.size() - foreign_.size())];
      return foreign.service->OnCall(foreign.method, std::move(call));
    }
    (this->*handlers_[method])(call);
  } catch (const std::exception& exception) {
    const Status status = WithPrefix(absl::StrCat(methods_[method], ": "), ExceptionStatus(exception));
    MR_LOG(Error, status.ToString());
    // If something else holds the call, it answers it.
    if (call.use_count() == 1 && !call->answered()) call->Reply(status);
  }
}

CallControl TaskService::ControlOf(const Call& call) const {
  CallControl control{
      .cancellation = call->cancellation(), .owner = call, .handover = call->handover(), .from = call.get()};
  if (call->deadline() != absl::InfiniteFuture()) control.timeout = call->deadline() - clock_->Now();
  return control;
}

StatusOr<std::shared_ptr<MasterSession>> TaskService::Find(const std::string& handle, const Call& call) const {
  StatusOr<std::shared_ptr<MasterSession>> session = master_->Find(handle);
  if (session.ok()) (*session)->lease()->Touch(*call);
  return session;
}

void TaskService::RunStep(Call call) {
  if (call->request().size() > kLargeTensors) call->RunsLong();
  StatusOr<RunStepCall> step = DecodeRunStep(call->request());
  call->request() = net::Bytes();
  if (!step.ok()) return call->Reply(step.status());
  const bool in_body = step->store_errors_in_response_body;
  auto done = [call, in_body](StatusOr<RunStepAnswer> answer) {
    if (!answer.ok()) {
      if (!in_body) return call->Reply(answer.status());
      RunStepAnswer failed;
      failed.status = answer.status();
      return call->Reply(EncodeRunStepAnswer(failed));
    }
    call->Reply(EncodeRunStepAnswer(*answer));
  };
  StatusOr<std::shared_ptr<MasterSession>> session = Find(step->session_handle, call);
  if (!session.ok()) return done(session.status());
  (*session)->RunStep(*std::move(step), ControlOf(call), std::move(done));
}

void TaskService::RunCallable(Call call) {
  if (call->request().size() > kLargeTensors) call->RunsLong();
  StatusOr<RunCallableCall> step = DecodeRunCallable(call->request());
  call->request() = net::Bytes();
  if (!step.ok()) return call->Reply(step.status());
  StatusOr<std::shared_ptr<MasterSession>> session = Find(step->session_handle, call);
  if (!session.ok()) return call->Reply(session.status());
  (*session)->RunCallable(*std::move(step), ControlOf(call), [call](StatusOr<RunCallableAnswer> answer) {
    if (!answer.ok()) return call->Reply(answer.status());
    call->Reply(EncodeRunCallableAnswer(*answer));
  });
}

void TaskService::CreateSession(Call call) {
  pb::CreateSessionRequest request;
  if (!ReadRequest(call, &request)) return;
  master_->CreateSession(std::move(request), ControlOf(call),
                         [call, master = master_](const StatusOr<pb::CreateSessionResponse>& response) {
                           if (response.ok()) master->Lease(response->session_handle(), *call);
                           Reply(call, response);
                         });
}

void TaskService::ExtendSession(Call call) {
  pb::ExtendSessionRequest request;
  if (!ReadRequest(call, &request)) return;
  StatusOr<std::shared_ptr<MasterSession>> session = Find(request.session_handle(), call);
  if (!session.ok()) return call->Reply(session.status());
  StatusOr<int64_t> version =
      (*session)->Extend(std::move(*request.mutable_graph_def()), request.current_graph_version());
  if (!version.ok()) return call->Reply(version.status());
  pb::ExtendSessionResponse response;
  response.set_new_graph_version(*version);
  call->Reply(net::Serialize(response));
}

void TaskService::PartialRunSetup(Call call) {
  pb::PartialRunSetupRequest request;
  if (!ReadRequest(call, &request)) return;
  StatusOr<std::shared_ptr<MasterSession>> session = Find(request.session_handle(), call);
  if (!session.ok()) return call->Reply(session.status());
  CallableSpec spec;
  spec.feeds.assign(request.feed().begin(), request.feed().end());
  spec.fetches.assign(request.fetch().begin(), request.fetch().end());
  spec.targets.assign(request.target().begin(), request.target().end());
  (*session)->PartialRunSetup(std::move(spec), ControlOf(call), [call](StatusOr<std::string> handle) {
    if (!handle.ok()) return call->Reply(handle.status());
    pb::PartialRunSetupResponse response;
    response.set_partial_run_handle(*std::move(handle));
    call->Reply(net::Serialize(response));
  });
}

void TaskService::CloseSession(Call call) {
  pb::CloseSessionRequest request;
  if (!ReadRequest(call, &request)) return;
  master_->CloseSession(request.session_handle(), ReplyEmpty(call));
}

void TaskService::ListDevices(Call call) {
  pb::ListDevicesRequest request;
  if (!ReadRequest(call, &request)) return;
  master_->ListDevices(request.session_handle(), ControlOf(call), ReplyTo<pb::ListDevicesResponse>(call));
}

void TaskService::Reset(Call call) {
  pb::ResetRequest request;
  if (!ReadRequest(call, &request)) return;
  master_->Reset(std::move(request), ControlOf(call), ReplyEmpty(call));
}

void TaskService::MakeCallable(Call call) {
  pb::MakeCallableRequest request;
  if (!ReadRequest(call, &request)) return;
  StatusOr<std::shared_ptr<MasterSession>> session = Find(request.session_handle(), call);
  if (!session.ok()) return call->Reply(session.status());
  (*session)->MakeCallable(std::move(*request.mutable_options()), ControlOf(call), [call](StatusOr<int64_t> handle) {
    if (!handle.ok()) return call->Reply(handle.status());
    pb::MakeCallableResponse response;
    response.set_handle(*handle);
    call->Reply(net::Serialize(response));
  });
}

void TaskService::ReleaseCallable(Call call) {
  pb::ReleaseCallableRequest request;
  if (!ReadRequest(call, &request)) return;
  StatusOr<std::shared_ptr<MasterSession>> session = Find(request.session_handle(), call);
  ReplyEmpty(call)(session.ok() ? (*session)->ReleaseCallable(request.handle()) : session.status());
}

void TaskService::GetStatus(Call call) {
  pb::GetStatusRequest request;
  if (ReadRequest(call, &request)) worker_->GetStatus({}, ReplyTo<pb::GetStatusResponse>(call));
}

void TaskService::CreateWorkerSession(Call call) {
  pb::CreateWorkerSessionRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->CreateWorkerSession(ControlOf(call), std::move(request), ReplyEmpty(call));
}

void TaskService::DeleteWorkerSession(Call call) {
  pb::DeleteWorkerSessionRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->DeleteWorkerSession(ControlOf(call), request.session_handle(), ReplyEmpty(call));
}

void TaskService::RegisterGraph(Call call) {
  pb::RegisterGraphRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->RegisterGraph(ControlOf(call), std::move(request), ReplyTo<pb::RegisterGraphResponse>(call));
}

void TaskService::DeregisterGraph(Call call) {
  pb::DeregisterGraphRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->DeregisterGraph(ControlOf(call), std::move(request), ReplyEmpty(call));
}

void TaskService::RunGraph(Call call) {
  if (call->request().size() > kLargeTensors) call->RunsLong();
  if (call->stream() != nullptr) return worker_->ServeGraph(ControlOf(call), call);
  StatusOr<RunGraphCall> run = DecodeRunGraph(call->request());
  call->request() = net::Bytes();
  if (!run.ok()) return call->Reply(run.status());
  const bool in_body = run->store_errors_in_response_body;
  worker_->RunGraph(ControlOf(call), *std::move(run), [call, in_body](StatusOr<RunGraphAnswer> answer) {
    if (!answer.ok()) return call->Reply(answer.status());
    if (!answer->status.ok() && !in_body) return call->Reply(answer->status);
    call->Reply(EncodeRunGraphAnswer(*answer));
  });
}

void TaskService::CleanupGraph(Call call) {
  pb::CleanupGraphRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->CleanupGraph({}, request.step_id(), ReplyEmpty(call));
}

void TaskService::CleanupAll(Call call) {
  pb::CleanupAllRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->CleanupAll({}, {request.container().begin(), request.container().end()}, ReplyEmpty(call));
}

void TaskService::RecvTensor(Call call) {
  pb::RecvTensorRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->RecvTensor(
      ControlOf(call), request.step_id(), request.rendezvous_key(),
      [call, clock = clock_](StatusOr<RendezvousItem> item) {
        if (!item.ok()) return call->Reply(item.status());
        call->Reply(EncodeRecvTensorAnswer(*item, absl::ToUnixMicros(clock->Now()), call->takes_large_answers()));
      });
}

void TaskService::RecvTensors(Call call) {
  StatusOr<RecvTensorsCall> wanted = DecodeRecvTensors(call->request());
  call->request() = net::Bytes();
  if (!wanted.ok()) return call->Reply(wanted.status());
  worker_->RecvTensors(ControlOf(call), wanted->step_id, wanted->keys,
                       [call, clock = clock_](StatusOr<std::vector<RendezvousItem>> items) {
                         if (!items.ok()) return call->Reply(items.status());
                         call->Reply(EncodeRecvTensorsAnswer(*items, absl::ToUnixMicros(clock->Now())));
                       });
}

void TaskService::CompleteGroup(Call call) {
  pb::CompleteGroupRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->CompleteGroup(ControlOf(call), request, ReplyTo<pb::CompleteGroupResponse>(call));
}

void TaskService::CompleteInstance(Call call) {
  pb::CompleteInstanceRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->CompleteInstance(ControlOf(call), request, ReplyTo<pb::CompleteInstanceResponse>(call));
}

void TaskService::GetStepSequence(Call call) {
  pb::GetStepSequenceRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->GetStepSequence(ControlOf(call), request, ReplyTo<pb::GetStepSequenceResponse>(call));
}

void TaskService::RecvBuf(Call call) {
  pb::RecvBufRequest request;
  if (!ReadRequest(call, &request)) return;
  worker_->RecvBuf(ControlOf(call), request, [call, clock = clock_](StatusOr<net::Bytes> buffer) {
    if (!buffer.ok()) return call->Reply(buffer.status());
    StatusOr<net::Bytes> message = EncodeRecvBufResponse(*buffer, absl::ToUnixMicros(clock->Now()));
    if (!message.ok()) return call->Reply(message.status());
    call->Reply(*std::move(message));
  });
}

// Millrace does not log individual calls, so there is nothing to enable or return.
void TaskService::Logging(Call call) {
  pb::LoggingRequest request;
  if (ReadRequest(call, &request)) call->Reply(net::Bytes());
}

void TaskService::Tracing(Call call) {
  pb::TracingRequest request;
  if (!ReadRequest(call, &request)) return;
  call->Reply(Unimplemented("Tracing: ask for a trace of a step with RunOptions instead"));
}

void TaskService::GetTaskStatus(Call call) {
  StatusRequest request;
  if (ReadRequest(call, &request)) call->Reply(net::Serialize(status_.Report()));
}

}  // namespace millrace
