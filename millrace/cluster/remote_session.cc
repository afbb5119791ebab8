#include "millrace/cluster/remote_session.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/cluster/codec.h"
#include "millrace/cluster/remote_callable.h"
#include "millrace/cluster/session_config.h"
#include "millrace/cluster/watched_channel.h"
#include "millrace/graph/graph_def.h"
#include "millrace/proto/master.pb.h"

namespace millrace {
namespace {

// Tensors travel by whole names.
std::string TensorName(const std::string& name) { return absl::StrContains(name, ':') ? name : absl::StrCat(name, ":0"); }

StatusOr<std::shared_ptr<MasterClient>> Connect(const SessionOptions& options, const RemoteSessionOptions& remote) {
  string_view address = options.target;
  if (!absl::ConsumePrefix(&address, "grpc://") || !absl::StrContains(address, ':')) {
    return InvalidArgument("the target '", options.target, "' is not of the form grpc://host:port");
  }
  return std::make_shared<MasterClient>(
      WatchChannel(remote.transport->Connect(std::string(address)), {.timeout = options.peer_timeout, .timers = remote.timers}),
      remote.first_request_id);
}

// The server, which is told the time-out too and knows what the step waits for, has the first word.
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

StatusOr<std::unique_ptr<RemoteSession>> RemoteSession::Create(const SessionOptions& options, const RemoteSessionOptions& remote) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<MasterClient> master, Connect(options, remote));
  return std::unique_ptr<RemoteSession>(new RemoteSession(options, std::move(master)));
}

RemoteSession::RemoteSession(const SessionOptions& options, std::shared_ptr<MasterClient> master)
    : options_(options), master_(std::move(master)) {}

RemoteSession::~RemoteSession() { Close().IgnoreError(); }

void RemoteSession::BeginTurn() {
  MutexLock lock(&mu_);
  while (in_turn_) turn_ended_.Wait(&mu_);
  in_turn_ = true;
}

void RemoteSession::EndTurn() {
  MutexLock lock(&mu_);
  in_turn_ = false;
  turn_ended_.Signal();
}

Status RemoteSession::Send(pb::GraphDef fresh) {
  const CallLimits limits = {.timeout = options_.operation_timeout};
  std::vector<std::string> nodes, functions;
  for (const pb::NodeDef& node : fresh.node()) nodes.push_back(node.name());
  for (const pb::FunctionDef& function : fresh.library().function()) functions.push_back(function.signature().name());
  if (const std::string handle = master_->session_handle(); handle.empty()) {
    pb::CreateSessionRequest request;
    *request.mutable_graph_def() = std::move(fresh);
    *request.mutable_config() = ConfigOf(options_);
    request.set_target(options_.target);
    MR_ASSIGN_OR_RETURN(auto answer, master_->Call<pb::CreateSessionResponse>("CreateSession", request, limits));
    if (answer.session_handle().empty()) return Internal("the server at ", master_->address(), " gave the session no handle");
    graph_version_ = answer.graph_version();
    master_->set_session_handle(answer.session_handle());
  } else {
    pb::ExtendSessionRequest request;
    request.set_session_handle(handle);
    *request.mutable_graph_def() = std::move(fresh);
    request.set_current_graph_version(graph_version_);
    MR_ASSIGN_OR_RETURN(auto answer, master_->Call<pb::ExtendSessionResponse>("ExtendSession", request, limits));
    graph_version_ = answer.new_graph_version();
  }
  nodes_.insert(nodes.begin(), nodes.end());
  functions_.insert(functions.begin(), functions.end());
  return absl::OkStatus();
}

Status RemoteSession::Extend(pb::GraphDef def) {
  if (def.node().empty() && def.library().function().empty()) return absl::OkStatus();
  BeginTurn();
  const Status status = Send(std::move(def));
  EndTurn();
  return status;
}

Status RemoteSession::Extend(const Graph& graph) {
  BeginTurn();
  pb::GraphDef fresh;
  *fresh.mutable_versions() = graph.versions();
  for (const Node* node : graph.nodes()) {
    if (!nodes_.contains(node->name())) *fresh.add_node() = ExportNodeDef(*node);
  }
  bool new_function = false;
  for (const pb::FunctionDef& function : graph.library().function()) {
    if (functions_.contains(function.signature().name())) continue;
    *fresh.mutable_library()->add_function() = function;
    new_function = true;
  }
  // What is registered for a function is told anew with it.
  if (new_function) *fresh.mutable_library()->mutable_gradient() = graph.library().gradient();
  const Status status = fresh.node().empty() && !new_function ? absl::OkStatus() : Send(std::move(fresh));
  EndTurn();
  return status;
}

StatusOr<std::string> RemoteSession::Handle() {
  if (std::string handle = master_->session_handle(); !handle.empty()) return handle;
  BeginTurn();
  const Status status = master_->session_handle().empty() ? Send({}) : absl::OkStatus();
  EndTurn();
  MR_RETURN_IF_ERROR(status);
  return master_->session_handle();
}

CallLimits RemoteSession::Limits(const RunOptions& options) const {
  return {.timeout = options.timeout == absl::InfiniteDuration() ? options_.operation_timeout : options.timeout,
          .cancellation = options.cancellation};
}

Status RemoteSession::Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                          absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) {
  CallLimits limits = Limits(options);
  limits.every_step = true;
  RunStepCall call;
  MR_ASSIGN_OR_RETURN(call.session_handle, Handle());
  for (const Feed& feed : feeds) call.feeds.emplace_back(TensorName(feed.first), feed.second);
  for (const std::string& fetch : fetches) call.fetches.push_back(TensorName(fetch));
  call.targets.assign(targets.begin(), targets.end());
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

StatusOr<std::unique_ptr<Callable>> RemoteSession::MakeCallable(const CallableSpec& spec) {
  CallableSpec whole = spec;
  for (std::string& name : whole.feeds) name = TensorName(name);
  for (std::string& name : whole.fetches) name = TensorName(name);
  pb::MakeCallableRequest request;
  MR_ASSIGN_OR_RETURN(*request.mutable_session_handle(), Handle());
  request.mutable_options()->mutable_feed()->Assign(whole.feeds.begin(), whole.feeds.end());
  request.mutable_options()->mutable_fetch()->Assign(whole.fetches.begin(), whole.fetches.end());
  request.mutable_options()->mutable_target()->Assign(whole.targets.begin(), whole.targets.end());
  request.set_request_id(master_->NextRequestId());
  MR_ASSIGN_OR_RETURN(const auto answer, master_->Call<pb::MakeCallableResponse>("MakeCallable", request, Limits({})));
  return std::make_unique<RemoteCallable>(this, master_, std::move(whole), answer.handle(), options_.operation_timeout);
}

StatusOr<std::string> RemoteSession::PartialRunSetup(absl::Span<const std::string> feeds, absl::Span<const std::string> fetches,
                                                     absl::Span<const std::string> targets) {
  pb::PartialRunSetupRequest request;
  MR_ASSIGN_OR_RETURN(*request.mutable_session_handle(), Handle());
  for (const std::string& feed : feeds) request.add_feed(TensorName(feed));
  for (const std::string& fetch : fetches) request.add_fetch(TensorName(fetch));
  for (const std::string& target : targets) request.add_target(target);
  request.set_request_id(master_->NextRequestId());
  MR_ASSIGN_OR_RETURN(const auto answer, master_->Call<pb::PartialRunSetupResponse>("PartialRunSetup", request, Limits({})));
  return answer.partial_run_handle();
}

Status RemoteSession::PartialRun(const std::string& handle, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                                 std::vector<Tensor>* results) {
  CallLimits limits = Limits({});
  limits.every_step = true;
  RunStepCall call;
  MR_ASSIGN_OR_RETURN(call.session_handle, Handle());
  for (const Feed& feed : feeds) call.feeds.emplace_back(TensorName(feed.first), feed.second);
  for (const std::string& fetch : fetches) call.fetches.push_back(TensorName(fetch));
  call.options = RunOptionsProto({}, options_.operation_timeout);
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
  std::vector<DeviceInfo> devices;
  for (const auto* list : {&answer.local_device(), &answer.remote_device()}) {
    for (const pb::DeviceAttributes& device : *list) {
      devices.push_back({.name = device.name(),
                         .type = device.device_type(),
                         .memory_limit = device.memory_limit(),
                         .incarnation = device.incarnation()});
    }
  }
  return devices;
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
