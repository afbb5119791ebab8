#include "millrace/cluster/client/remote_session.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/cluster/client/remote_callable.h"
#include "millrace/cluster/client/session_config.h"
#include "millrace/cluster/client/watched_channel.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/proto/master.pb.h"

namespace millrace {
namespace {

StatusOr<std::shared_ptr<MasterClient>> Connect(const SessionOptions& options, const RemoteSessionOptions& remote) {
  string_view address = options.target;
  if (!absl::ConsumePrefix(&address, "grpc://") || !absl::StrContains(address, ':')) {
    return InvalidArgument("the target '", options.target, "' is not of the form grpc://host:port");
  }
  return std::make_shared<MasterClient>(WatchChannel(remote.transport->Connect(std::string(address)),
                                                     {.peer_timeout = options.peer_timeout, .timers = remote.timers}),
                                        remote.first_request_id, remote.wait);
}

// The server gets the timeout too, and knows what the step waits for, so its error should come first.
CallLimits AfterServer(CallLimits limits) {
  limits.timeout += std::clamp(limits.timeout / 5, absl::Milliseconds(20), absl::Milliseconds(500));
  return limits;
}

// Puts the answer's tensors in the order of the fetches.
Status TakeResults(const std::vector<std::string>& fetches, NamedTensors tensors, const std::string& address,
                   std::vector<Tensor>* results) {
  absl::flat_hash_map<string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) by_name.emplace(name, &tensor);
  results->clear();
  for (const std::string& fetch : fetches) {
    const auto it = by_name.find(fetch);
    if (it == by_name.end()) return Internal("the server at ", address, " sent no value for ", fetch);
    results->push_back(*it->second);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<RemoteSession>> RemoteSession::Create(const SessionOptions& options,
                                                               const RemoteSessionOptions& remote) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<MasterClient> master, Connect(options, remote));
  return std::unique_ptr<RemoteSession>(new RemoteSession(options, std::move(master)));
}

RemoteSession::RemoteSession(const SessionOptions& options, std::shared_ptr<MasterClient> master)
    : BaseSession(options), master_(std::move(master)) {}

RemoteSession::~RemoteSession() { Close().IgnoreError(); }

Status RemoteSession::Add(pb::GraphDef fresh) {
  const CallLimits limits = {.timeout = options().operation_timeout};
  if (const std::string handle = master_->session_handle(); !handle.empty()) {
    pb::ExtendSessionRequest request;
    request.set_session_handle(handle);
    *request.mutable_graph_def() = std::move(fresh);
    request.set_current_graph_version(graph_version_);
    MR_ASSIGN_OR_RETURN(auto answer, master_->Call<pb::ExtendSessionResponse>("ExtendSession", request, limits));
    graph_version_ = answer.new_graph_version();
    return absl::OkStatus();
  }
  pb::CreateSessionRequest request;
  *request.mutable_graph_def() = std::move(fresh);
  *request.mutable_config() = ConfigOf(options());
  request.set_target(options().target);
  MR_ASSIGN_OR_RETURN(auto answer, master_->Call<pb::CreateSessionResponse>("CreateSession", request, limits));
  if (answer.session_handle().empty())
    return Internal("the server at ", master_->address(), " gave the session no handle");
  graph_version_ = answer.graph_version();
  master_->set_session_handle(answer.session_handle());
  return absl::OkStatus();
}

StatusOr<std::string> RemoteSession::Handle() {
  if (std::string handle = master_->session_handle(); !handle.empty()) return handle;
  MR_RETURN_IF_ERROR(InTurn([&] { return master_->session_handle().empty() ? Add({}) : absl::OkStatus(); }));
  return master_->session_handle();
}

CallLimits RemoteSession::Limits(const RunOptions& options) const {
  return {.timeout = TimeoutOf(options), .cancellation = options.cancellation};
}

Status RemoteSession::RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options,
                              std::vector<Tensor>* results, RunMetadata* metadata) {
  CallLimits limits = Limits(options);
  limits.every_step = true;
  RunStepCall call;
  MR_ASSIGN_OR_RETURN(call.session_handle, Handle());
  call.feeds.reserve(feeds.size());
  for (size_t i = 0; i < feeds.size(); ++i) call.feeds.emplace_back(std::move(spec.feeds[i]), std::move(feeds[i]));
  call.fetches = std::move(spec.fetches);
  call.targets = std::move(spec.targets);
  call.options = RunOptionsProto(options, limits.timeout);
  call.store_errors_in_response_body = true;
  call.request_id = master_->NextRequestId();
  MR_ASSIGN_OR_RETURN(net::Bytes request, EncodeRunStep(call));
  MR_ASSIGN_OR_RETURN(const net::Bytes bytes, master_->Call("RunStep", std::move(request), AfterServer(limits)));
  MR_ASSIGN_OR_RETURN(RunStepAnswer answer, DecodeRunStepAnswer(bytes));
  if (metadata != nullptr) *metadata = std::move(answer.metadata);
  MR_RETURN_IF_ERROR(answer.status);
  return TakeResults(call.fetches, std::move(answer.tensors), master_->address(), results);
}

StatusOr<std::unique_ptr<Callable>> RemoteSession::Compile(CallableSpec spec) {
  pb::MakeCallableRequest request;
  MR_ASSIGN_OR_RETURN(*request.mutable_session_handle(), Handle());
  request.mutable_options()->mutable_feed()->Assign(spec.feeds.begin(), spec.feeds.end());
  request.mutable_options()->mutable_fetch()->Assign(spec.fetches.begin(), spec.fetches.end());
  request.mutable_options()->mutable_target()->Assign(spec.targets.begin(), spec.targets.end());
  request.set_request_id(master_->NextRequestId());
  MR_ASSIGN_OR_RETURN(const auto answer, master_->Call<pb::MakeCallableResponse>("MakeCallable", request, Limits({})));
  return std::make_unique<RemoteCallable>(this, master_, std::move(spec), answer.handle());
}

StatusOr<std::string> RemoteSession::SetUpPartial(CallableSpec spec) {
  pb::PartialRunSetupRequest request;
  MR_ASSIGN_OR_RETURN(*request.mutable_session_handle(), Handle());
  request.mutable_feed()->Assign(spec.feeds.begin(), spec.feeds.end());
  request.mutable_fetch()->Assign(spec.fetches.begin(), spec.fetches.end());
  request.mutable_target()->Assign(spec.targets.begin(), spec.targets.end());
  request.set_request_id(master_->NextRequestId());
  MR_ASSIGN_OR_RETURN(const auto answer,
                      master_->Call<pb::PartialRunSetupResponse>("PartialRunSetup", request, Limits({})));
  return answer.partial_run_handle();
}

Status RemoteSession::RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                                 std::vector<Tensor>* results) {
  CallLimits limits = Limits({});
  limits.every_step = true;
  RunStepCall call;
  MR_ASSIGN_OR_RETURN(call.session_handle, Handle());
  call.feeds = std::move(feeds);
  call.fetches = std::move(fetches);
  call.options = RunOptionsProto({}, options().operation_timeout);
  call.partial_run_handle = handle;
  call.store_errors_in_response_body = true;
  call.request_id = master_->NextRequestId();
  MR_ASSIGN_OR_RETURN(net::Bytes request, EncodeRunStep(call));
  MR_ASSIGN_OR_RETURN(const net::Bytes bytes, master_->Call("RunStep", std::move(request), limits));
  MR_ASSIGN_OR_RETURN(RunStepAnswer answer, DecodeRunStepAnswer(bytes));
  MR_RETURN_IF_ERROR(answer.status);
  return TakeResults(call.fetches, std::move(answer.tensors), master_->address(), results);
}
StatusOr<std::vector<DeviceInfo>> RemoteSession::ListDeviceInfo() {
  pb::ListDevicesRequest request;
  MR_ASSIGN_OR_RETURN(*request.mutable_session_handle(), Handle());
  MR_ASSIGN_OR_RETURN(const auto answer, master_->Call<pb::ListDevicesResponse>("ListDevices", request, Limits({})));
  return DeviceInfos(answer);
}

Status RemoteSession::Close() {
  pb::CloseSessionRequest request;
  request.set_session_handle(master_->session_handle());
  return master_->Shut(request.session_handle().empty() ? nullptr : "CloseSession", request, Limits({}));
}

Status RemoteSession::Reset(const SessionOptions& options, const std::vector<std::string>& containers,
                            const RemoteSessionOptions& remote) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<MasterClient> master, Connect(options, remote));
  pb::ResetRequest request;
  request.mutable_container()->Assign(containers.begin(), containers.end());
  request.mutable_device_filters()->Assign(options.device_filters.begin(), options.device_filters.end());
  return master->Call<pb::ResetResponse>("Reset", request, {.timeout = options.operation_timeout}).status();
}

}  // namespace millrace
