// The reference for the codec: protobuf's own parser and TensorFromProto. For tests and fuzzers only.
#pragma once

#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/proto/master.pb.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace::testing {

inline std::string Deterministic(const google::protobuf::MessageLite& message) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return text;
}

// Converts a tensor to the canonical one of its equivalent forms.
inline Status Normalize(pb::TensorProto* proto) {
  MR_ASSIGN_OR_RETURN(const Tensor tensor, TensorFromProto(*proto));
  TensorToProto(tensor, proto);
  return absl::OkStatus();
}
template <typename Tensors>
Status NormalizeAll(Tensors* tensors) {
  for (auto& item : *tensors) {
    if constexpr (requires { item.mutable_tensor(); }) {
      MR_RETURN_IF_ERROR(Normalize(item.mutable_tensor()));
    } else {
      MR_RETURN_IF_ERROR(Normalize(&item));
    }
  }
  return absl::OkStatus();
}
template <typename Proto>
void NormalizeStatus(Proto* proto) {
  const int code = proto->status_code();
  if (code == 0) proto->clear_status_error_message();
  if (code >= 0 && code <= 16) return;
  proto->set_status_error_message(absl::StrCat("(code ", code, ") ", proto->status_error_message()));
  proto->set_status_code(2);
}
template <typename Items>
void SetNamed(const NamedTensors& tensors, Items* items) {
  for (const auto& [name, tensor] : tensors) {
    auto* item = items->Add();
    item->set_name(name);
    TensorToProto(tensor, item->mutable_tensor());
  }
}
template <typename Proto>
void SetStatus(const Status& status, Proto* proto) {
  if (status.ok()) return;
  proto->set_status_code(static_cast<int>(status.code()));
  proto->set_status_error_message(std::string(status.message()));
}

// For each message type: Decode, Encode, ToProto (the decoded value as a message) and Normal (a message in canonical
// form).
template <typename Proto>
struct Reference;

// An identity that is not given is as good as none.
template <typename Proto>
void SetRun(const RunIdentity& run, Proto* out) {
  if (run.given()) *out->mutable_millrace_run() = ToProto(run);
}
template <typename Proto>
void NormalizeRun(Proto* proto) {
  if (proto->millrace_run().client() == 0) proto->clear_millrace_run();
}

template <>
struct Reference<pb::RunStepRequest> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunStep(bytes); }
  static auto Encode(const RunStepCall& call) { return EncodeRunStep(call); }
  static void ToProto(const RunStepCall& call, pb::RunStepRequest* out) {
    out->set_session_handle(call.session_handle);
    SetNamed(call.feeds, out->mutable_feed());
    for (const auto& name : call.fetches) out->add_fetch(name);
    for (const auto& name : call.targets) out->add_target(name);
    *out->mutable_options() = call.options;
    out->set_partial_run_handle(call.partial_run_handle);
    out->set_store_errors_in_response_body(call.store_errors_in_response_body);
    out->set_request_id(call.request_id);
  }
  static Status Normal(pb::RunStepRequest* proto) {
    proto->mutable_options();
    return NormalizeAll(proto->mutable_feed());
  }
};

template <>
struct Reference<pb::RunStepResponse> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunStepAnswer(bytes); }
  static auto Encode(const RunStepAnswer& answer) { return EncodeRunStepAnswer(answer); }
  static void ToProto(const RunStepAnswer& answer, pb::RunStepResponse* out) {
    SetNamed(answer.tensors, out->mutable_tensor());
    *out->mutable_metadata() = answer.metadata;
    SetStatus(answer.status, out);
  }
  static Status Normal(pb::RunStepResponse* proto) {
    proto->mutable_metadata();
    NormalizeStatus(proto);
    return NormalizeAll(proto->mutable_tensor());
  }
};

template <>
struct Reference<pb::RunCallableRequest> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunCallable(bytes); }
  static auto Encode(const RunCallableCall& call) { return EncodeRunCallable(call); }
  static void ToProto(const RunCallableCall& call, pb::RunCallableRequest* out) {
    out->set_session_handle(call.session_handle);
    out->set_handle(call.handle);
    for (const Tensor& tensor : call.feeds) TensorToProto(tensor, out->add_feed());
    out->set_request_id(call.request_id);
    SetRun(call.run, out);
  }
  static Status Normal(pb::RunCallableRequest* proto) {
    NormalizeRun(proto);
    return NormalizeAll(proto->mutable_feed());
  }
};

template <>
struct Reference<pb::RunCallableResponse> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunCallableAnswer(bytes); }
  static auto Encode(const RunCallableAnswer& answer) { return EncodeRunCallableAnswer(answer); }
  static void ToProto(const RunCallableAnswer& answer, pb::RunCallableResponse* out) {
    for (const Tensor& tensor : answer.fetches) TensorToProto(tensor, out->add_fetch());
    *out->mutable_metadata() = answer.metadata;
  }
  static Status Normal(pb::RunCallableResponse* proto) {
    proto->mutable_metadata();
    return NormalizeAll(proto->mutable_fetch());
  }
};

template <>
struct Reference<pb::RunGraphRequest> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunGraph(bytes); }
  static auto Encode(const RunGraphCall& call) { return EncodeRunGraph(call); }
  static void ToProto(const RunGraphCall& call, pb::RunGraphRequest* out) {
    out->set_session_handle(call.session_handle);
    out->set_create_worker_session_called(call.create_worker_session_called);
    out->set_graph_handle(call.graph_handle);
    out->set_step_id(call.step_id);
    *out->mutable_exec_opts() = call.exec_opts;
    SetNamed(call.send, out->mutable_send());
    for (const auto& key : call.recv_keys) out->add_recv_key(key);
    out->set_is_partial(call.is_partial);
    out->set_is_last_partial_run(call.is_last_partial_run);
    out->set_store_errors_in_response_body(call.store_errors_in_response_body);
    out->set_request_id(call.request_id);
    SetRun(call.run, out);
  }
  static Status Normal(pb::RunGraphRequest* proto) {
    proto->mutable_exec_opts();
    NormalizeRun(proto);
    return NormalizeAll(proto->mutable_send());
  }
};

template <>
struct Reference<pb::RunGraphResponse> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRunGraphAnswer(bytes); }
  static auto Encode(const RunGraphAnswer& answer) { return EncodeRunGraphAnswer(answer); }
  static void ToProto(const RunGraphAnswer& answer, pb::RunGraphResponse* out) {
    SetNamed(answer.recv, out->mutable_recv());
    if (answer.step_stats.dev_stats_size() > 0) *out->mutable_step_stats() = answer.step_stats;
    for (const pb::GraphDef& graph : answer.partition_graphs) *out->add_partition_graph() = graph;
    SetStatus(answer.status, out);
  }
  static Status Normal(pb::RunGraphResponse* proto) {
    proto->clear_cost_graph();  // nobody here asks for one
    if (proto->step_stats().dev_stats_size() == 0) proto->clear_step_stats();
    NormalizeStatus(proto);
    return NormalizeAll(proto->mutable_recv());
  }
};

template <>
struct Reference<pb::RecvTensorResponse> {
  static auto Decode(const net::Bytes& bytes) { return DecodeRecvTensorAnswer(bytes, Allocator::Heap()); }
  static auto Encode(const RendezvousItem& item) { return EncodeRecvTensorAnswer(item, 0); }
  static void ToProto(const RendezvousItem& item, pb::RecvTensorResponse* out) {
    out->set_is_dead(item.is_dead);
    TensorToProto(item.is_dead ? Tensor(DType::kFloat, Shape({0})) : item.tensor, out->mutable_tensor());
  }
  static Status Normal(pb::RecvTensorResponse* proto) {
    proto->clear_send_start_micros();
    proto->clear_require_ack();
    if (proto->is_dead()) TensorToProto(Tensor(DType::kFloat, Shape({0})), proto->mutable_tensor());
    return Normalize(proto->mutable_tensor());
  }
};

// OK if the codec and protobuf agree on `bytes`: both reject them, or both decode the same message, which also survives
// a round trip through the codec. Otherwise the error describes the difference.
template <typename Proto>
Status CheckAgainstProtobuf(const net::Bytes& bytes) {
  using R = Reference<Proto>;
  Proto expected;
  Status reference = net::Parse(bytes, &expected);
  if (reference.ok()) reference = R::Normal(&expected);
  const auto decoded = R::Decode(bytes);
  if (decoded.ok() != reference.ok()) {
    return Internal("protobuf says '", reference.ToString(), "', the codec '", decoded.status().ToString(), "'");
  }
  if (!decoded.ok()) return absl::OkStatus();
  expected.DiscardUnknownFields();

  Proto got;
  R::ToProto(*decoded, &got);
  got.DiscardUnknownFields();
  if (Deterministic(got) != Deterministic(expected)) {
    return Internal("decoded ", got.ShortDebugString(), " instead of ", expected.ShortDebugString());
  }
  MR_ASSIGN_OR_RETURN(const net::Bytes again, R::Encode(*decoded));
  Proto parsed;
  MR_RETURN_IF_ERROR(net::Parse(again, &parsed));
  MR_RETURN_IF_ERROR(R::Normal(&parsed));
  parsed.DiscardUnknownFields();
  if (Deterministic(parsed) != Deterministic(expected)) {
    return Internal("encoded ", parsed.ShortDebugString(), " instead of ", expected.ShortDebugString());
  }
  return absl::OkStatus();
}

// By the name of the message.
inline Status CheckAgainstProtobuf(string_view type, const net::Bytes& bytes) {
  if (type == "RunStepRequest") return CheckAgainstProtobuf<pb::RunStepRequest>(bytes);
  if (type == "RunStepResponse") return CheckAgainstProtobuf<pb::RunStepResponse>(bytes);
  if (type == "RunCallableRequest") return CheckAgainstProtobuf<pb::RunCallableRequest>(bytes);
  if (type == "RunCallableResponse") return CheckAgainstProtobuf<pb::RunCallableResponse>(bytes);
  if (type == "RunGraphRequest") return CheckAgainstProtobuf<pb::RunGraphRequest>(bytes);
  if (type == "RunGraphResponse") return CheckAgainstProtobuf<pb::RunGraphResponse>(bytes);
  if (type == "RecvTensorResponse") return CheckAgainstProtobuf<pb::RecvTensorResponse>(bytes);
  return NotFound("no codec for ", type);
}

}  // namespace millrace::testing
