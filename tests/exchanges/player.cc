#include "tests/exchanges/player.h"

#include <concepts>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "millrace/tensor/tensor_proto.h"
#include "tests/golden/compare.h"

namespace millrace::exchanges {
namespace {

constexpr char kFallsBack[] = "falls_back/";

template <typename Key>
Status Replace(const std::map<Key, Key>& now, Key* value, const char* what) {
  const auto at = now.find(*value);
  if (at == now.end()) return DataLoss("no earlier answer has the ", what, " ", *value);
  *value = at->second;
  return absl::OkStatus();
}

bool IsGpu(absl::string_view device) { return absl::StrContains(absl::AsciiStrToLower(device), "gpu:"); }

Status CompareTensors(const pb::TensorProto& want, const pb::TensorProto& got, Tolerance tolerance) {
  MR_ASSIGN_OR_RETURN(const Tensor recorded, TensorFromProto(want));
  MR_ASSIGN_OR_RETURN(const Tensor now, TensorFromProto(got));
  return golden::Compare(recorded, now, tolerance.rtol, tolerance.atol);
}

Status CompareCodes(int want, const Status& got) {
  if (static_cast<int>(got.code()) == want) return absl::OkStatus();
  if (got.ok()) return DataLoss("it succeeds, and ended with code ", want, " when it was recorded");
  return DataLoss("it ended with code ", want, " when it was recorded, and now with ", got.ToString());
}

}  // namespace

StatusOr<net::Bytes> CallAndWait(net::Channel* server, const std::string& method, net::Bytes request) {
  StatusOr<net::Bytes> answer = net::Bytes();
  Notification done;
  const RefPtr<net::OutgoingCall> call = server->Call(absl::StrCat(kService, method), std::move(request),
                                                      {.timeout = absl::Minutes(1)}, [&](StatusOr<net::Bytes> result) {
                                                        answer = std::move(result);
                                                        done.Notify();
                                                      });
  done.Wait();
  return answer;
}

Player::Player(net::Channel* server, Tolerance tolerance, bool has_gpu)
    : server_(server), tolerance_(tolerance), has_gpu_(has_gpu) {}

StatusOr<Played> Player::Play(const std::vector<Exchange>& exchanges) {
  for (const Exchange& exchange : exchanges) {
    ++played_.exchanges;
    MR_RETURN_IF_ERROR(
        WithPrefix(absl::StrCat("exchange ", played_.exchanges, ", ", exchange.method, ": "), PlayOne(exchange)));
  }
  if (has_gpu_ && played_.gpu_nodes == 0 && played_.cpu_nodes > 0)
    return DataLoss("of the ", played_.cpu_nodes, " nodes of its traced steps, none ran on the GPU");
  return played_;
}

Status Player::PlayOne(const Exchange& e) {
  if (e.method == "CreateSession") return Repeat<pb::CreateSessionRequest, pb::CreateSessionResponse>(e);
  if (e.method == "ExtendSession") return Repeat<pb::ExtendSessionRequest, pb::ExtendSessionResponse>(e);
  if (e.method == "PartialRunSetup") return Repeat<pb::PartialRunSetupRequest, pb::PartialRunSetupResponse>(e);
  if (e.method == "RunStep") return Repeat<pb::RunStepRequest, pb::RunStepResponse>(e);
  if (e.method == "CloseSession") return Repeat<pb::CloseSessionRequest, pb::CloseSessionResponse>(e);
  if (e.method == "ListDevices") return Repeat<pb::ListDevicesRequest, pb::ListDevicesResponse>(e);
  if (e.method == "Reset") return Repeat<pb::ResetRequest, pb::ResetResponse>(e);
  if (e.method == "MakeCallable") return Repeat<pb::MakeCallableRequest, pb::MakeCallableResponse>(e);
  if (e.method == "RunCallable") return Repeat<pb::RunCallableRequest, pb::RunCallableResponse>(e);
  if (e.method == "ReleaseCallable") return Repeat<pb::ReleaseCallableRequest, pb::ReleaseCallableResponse>(e);
  return Unimplemented("the player does not know this method");
}

template <typename Request, typename Response>
Status Player::Repeat(const Exchange& exchange) {
  Request request;
  MR_RETURN_IF_ERROR(net::Parse(net::Bytes::Of(exchange.request), &request));
  MR_RETURN_IF_ERROR(Translate(&request));
  const StatusOr<net::Bytes> answer = CallAndWait(server_, exchange.method, net::Serialize(request));
  MR_RETURN_IF_ERROR(CompareCodes(static_cast<int>(exchange.status.code()), answer.status()));
  if (!answer.ok()) return absl::OkStatus();
  Response want, got;
  MR_RETURN_IF_ERROR(net::Parse(net::Bytes::Of(exchange.response), &want));
  MR_RETURN_IF_ERROR(net::Parse(*answer, &got));
  return Check(want, got);
}

template <typename Request>
Status Player::Translate(Request* request) {
  if constexpr (requires { request->graph_def(); }) NoteDevices(request->graph_def());
  if constexpr (requires { request->session_handle(); }) {
    if (!request->session_handle().empty())
      MR_RETURN_IF_ERROR(Replace(sessions_, request->mutable_session_handle(), "session"));
  }
  if constexpr (requires { request->partial_run_handle(); }) {
    if (!request->partial_run_handle().empty())
      MR_RETURN_IF_ERROR(Replace(partial_runs_, request->mutable_partial_run_handle(), "partial run"));
  }
  if constexpr (requires { request->handle(); }) {
    int64_t handle = request->handle();
    MR_RETURN_IF_ERROR(Replace(callables_, &handle, "callable"));
    request->set_handle(handle);
  }
  if constexpr (requires { request->current_graph_version(); }) {
    int64_t version = request->current_graph_version();
    MR_RETURN_IF_ERROR(Replace(versions_, &version, "version of a graph"));
    request->set_current_graph_version(version);
  }
  return absl::OkStatus();
}

template <typename Response>
Status Player::Check(const Response& want, const Response& got) {
  if constexpr (requires { want.session_handle(); }) sessions_[want.session_handle()] = got.session_handle();
  if constexpr (requires { want.graph_version(); }) versions_[want.graph_version()] = got.graph_version();
  if constexpr (requires { want.new_graph_version(); }) versions_[want.new_graph_version()] = got.new_graph_version();
  if constexpr (requires { want.partial_run_handle(); }) {
    partial_runs_[want.partial_run_handle()] = got.partial_run_handle();
  }
  if constexpr (requires { want.handle(); }) callables_[want.handle()] = got.handle();
  if constexpr (requires { want.status_code(); }) {
    MR_RETURN_IF_ERROR(CompareCodes(
        want.status_code(), Status(static_cast<absl::StatusCode>(got.status_code()), got.status_error_message())));
  }
  if constexpr (requires { want.tensor(); }) {
    if (want.tensor_size() != got.tensor_size())
      return DataLoss("it has ", got.tensor_size(), " tensors, and had ", want.tensor_size());
    std::map<std::string, const pb::TensorProto*> by_name;
    for (const pb::NamedTensorProto& named : got.tensor()) by_name[named.name()] = &named.tensor();
    for (const pb::NamedTensorProto& named : want.tensor()) {
      const auto at = by_name.find(named.name());
      if (at == by_name.end()) return DataLoss(named.name(), " is missing");
      MR_RETURN_IF_ERROR(
          WithPrefix(absl::StrCat(named.name(), ": "), CompareTensors(named.tensor(), *at->second, tolerance_)));
    }
  }
  if constexpr (requires { want.fetch(); }) {
    if (want.fetch_size() != got.fetch_size())
      return DataLoss("it has ", got.fetch_size(), " tensors, and had ", want.fetch_size());
    for (int i = 0; i < want.fetch_size(); ++i)
      MR_RETURN_IF_ERROR(
          WithPrefix(absl::StrCat("tensor ", i, ": "), CompareTensors(want.fetch(i), got.fetch(i), tolerance_)));
  }
  if constexpr (requires { want.metadata(); }) {
    MR_RETURN_IF_ERROR(CheckPlaces(want.metadata().step_stats(), got.metadata().step_stats()));
  }
  return absl::OkStatus();
}

void Player::NoteDevices(const pb::GraphDef& graph) {
  for (const pb::NodeDef& node : graph.node()) {
    if (IsGpu(node.device())) ask_for_gpu_.insert(node.name());
  }
}

Status Player::CheckPlaces(const pb::StepStats& recorded, const pb::StepStats& now) {
  if (recorded.dev_stats_size() > 0 && now.dev_stats_size() == 0)
    return DataLoss("the step was traced, and is not now");
  for (const pb::DeviceStepStats& device : now.dev_stats()) {
    const bool is_gpu = IsGpu(device.device());
    for (const pb::NodeExecStats& node : device.node_stats()) {
      ++(is_gpu ? played_.gpu_nodes : played_.cpu_nodes);
      const bool falls_back = absl::StartsWith(node.node_name(), kFallsBack);
      if (falls_back && is_gpu) return DataLoss(node.node_name(), " ran on ", device.device(), ", which has no kernel");
      if (has_gpu_ && !is_gpu && !falls_back && ask_for_gpu_.contains(node.node_name()))
        return DataLoss(node.node_name(), " asks for a GPU, and ran on ", device.device());
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace::exchanges
