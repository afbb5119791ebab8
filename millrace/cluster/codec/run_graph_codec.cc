// Encodes and decodes RunGraph and the answer of RecvTensor.
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/codec/tensor_fields.h"

namespace millrace {
namespace {

constexpr TensorRole kSend = {3, "send", "RunGraphRequest"};
constexpr TensorRole kRecv = {1, "recv", "RunGraphResponse"};
// The limit of a received tensor; no transport carries more.
constexpr size_t kAnyLength = size_t{1} << 60;

}  // namespace

StatusOr<net::Bytes> EncodeRunGraph(const RunGraphCall& call) {
  MessageWriter out;
  out.String(1, call.graph_handle);
  out.Number(2, call.step_id);
  MR_RETURN_IF_ERROR(WriteTensors(kSend, call.send, &out));
  for (const std::string& key : call.recv_keys) out.RepeatedString(4, key);
  out.Message(5, call.exec_opts);
  out.Number(6, call.is_partial);
  out.Number(7, call.is_last_partial_run);
  out.String(8, call.session_handle);
  out.Number(9, call.store_errors_in_response_body);
  out.Number(10, call.create_worker_session_called);
  out.Number(11, call.request_id);
  if (call.run.given()) out.Message(kRunField, ToProto(call.run));
  out.Number(kCollectiveStepField, call.collective_step);
  return std::move(out).Take("RunGraphRequest");
}

StatusOr<RunGraphCall> DecodeRunGraph(const net::Bytes& bytes) {
  StatusOr<RunGraphCall> result{absl::in_place};
  RunGraphCall& call = *result;
  // Absent fields are false, whatever the defaults of a RunGraphCall are.
  call.create_worker_session_called = false;
  call.store_errors_in_response_body = false;
  RepeatLimit repeats;
  pb::MillraceRun run;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(3)) {
      MR_RETURN_IF_ERROR(ReadTensor(kSend, &in, &repeats, &call.send));
    } else {
      in.Take(1, &call.graph_handle) || in.Take(2, &call.step_id) || in.Take(4, &call.recv_keys) ||
          in.Take(5, &call.exec_opts) || in.Take(6, &call.is_partial) || in.Take(7, &call.is_last_partial_run) ||
          in.Take(8, &call.session_handle) || in.Take(9, &call.store_errors_in_response_body) ||
          in.Take(10, &call.create_worker_session_called) || in.Take(11, &call.request_id) ||
          in.Take(kRunField, &run) || in.Take(kCollectiveStepField, &call.collective_step) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunGraphRequest"));
  call.run = FromProto(run);
  return result;
}

StatusOr<net::Bytes> EncodeRunGraphAnswer(const RunGraphAnswer& answer) {
  MessageWriter out;
  MR_RETURN_IF_ERROR(WriteTensors(kRecv, answer.recv, &out));
  if (answer.step_stats.dev_stats_size() > 0) out.Message(2, answer.step_stats);
  for (const pb::GraphDef& graph : answer.partition_graphs) out.Message(4, graph);
  out.StatusFields(5, 6, answer.status);
  return std::move(out).Take("RunGraphResponse");
}

StatusOr<RunGraphAnswer> DecodeRunGraphAnswer(const net::Bytes& bytes) {
  StatusOr<RunGraphAnswer> result{absl::in_place};
  RunGraphAnswer& answer = *result;
  RepeatLimit repeats;
  // Not used here, but checked: a malformed field makes the message malformed.
  pb::CostGraphDef cost_graph;
  uint64_t code = 0;
  std::string message;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(1)) {
      MR_RETURN_IF_ERROR(ReadTensor(kRecv, &in, &repeats, &answer.recv));
    } else if (in.tag() == BytesTag(4)) {
      in.ReadMessage(&answer.partition_graphs.emplace_back());
    } else {
      in.Take(2, &answer.step_stats) || in.Take(3, &cost_graph) || in.Take(5, &code) || in.Take(6, &message) ||
          in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunGraphResponse"));
  answer.status = StatusFromFields(code, message);
  return result;
}

StatusOr<net::Bytes> EncodeRecvTensorAnswer(const RendezvousItem& item, int64_t send_start_micros, bool large) {
  MessageWriter out(large ? kAnyLength : MessageWriter::kMaxSize);
  out.Number(2, item.is_dead);
  out.Number(3, send_start_micros);
  // A dead value needs a tensor too; TensorFlow's is an empty one.
  const Tensor& tensor = item.is_dead ? Tensor(DType::kFloat, Shape({0})) : item.tensor;
  if (Status s = WriteTensor(1, tensor, &out); !s.ok()) return WithPrefix("tensor of RecvTensorResponse: ", s);
  return std::move(out).Take("RecvTensorResponse");
}

StatusOr<RendezvousItem> DecodeRecvTensorAnswer(const net::Bytes& bytes, Allocator* allocator) {
  RendezvousItem item;
  TensorField tensor;
  net::BytesReader reader(bytes);
  FieldReader in(&reader, kAnyLength);
  while (in.Next()) {
    if (in.tag() == BytesTag(1)) {
      tensor.Scan(&in);
    } else {
      in.Take(2, &item.is_dead) || in.Take(3, &item.sent_micros) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RecvTensorResponse"));
  RepeatLimit repeats;
  Status read = tensor.Read(allocator, &repeats, &item.tensor);
  if (!read.ok() && item.is_dead) read = tensor.CheckMessage();  // the values of a dead tensor mean nothing
  if (!read.ok()) return WithPrefix("tensor of RecvTensorResponse: ", read);
  return item;
}

StatusOr<net::Bytes> EncodeRecvTensors(int64_t step_id, const std::vector<std::string>& keys) {
  MessageWriter out;
  out.Number(1, step_id);
  for (const std::string& key : keys) out.RepeatedString(2, key);
  return std::move(out).Take("RecvTensorsRequest");
}

StatusOr<RecvTensorsCall> DecodeRecvTensors(const net::Bytes& bytes) {
  RecvTensorsCall call;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    in.Take(1, &call.step_id) || in.Take(2, &call.keys) || in.Ignore();
  }
  MR_RETURN_IF_ERROR(in.End("RecvTensorsRequest"));
  return call;
}

StatusOr<net::Bytes> EncodeRecvTensorsAnswer(const std::vector<RendezvousItem>& items, int64_t send_start_micros) {
  net::Bytes all;
  for (const RendezvousItem& item : items) {
    MR_ASSIGN_OR_RETURN(net::Bytes one, EncodeRecvTensorAnswer(item, send_start_micros));
    MessageWriter head;
    head.Varint(BytesTag(1));
    head.Varint(one.size());
    MR_ASSIGN_OR_RETURN(net::Bytes before, std::move(head).Take("RecvTensorsResponse"));
    all.Append(std::move(before));
    all.Append(std::move(one));
  }
  if (all.size() > MessageWriter::kMaxSize)
    return InvalidArgument("the tensors of a RecvTensorsResponse are ", all.size(),
                           " bytes, which is too much for one message");
  return all;
}

StatusOr<std::vector<RendezvousItem>> DecodeRecvTensorsAnswer(const net::Bytes& bytes, Allocator* allocator) {
  std::vector<RendezvousItem> items;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() != BytesTag(1)) {
      in.Skip();
      continue;
    }
    net::Bytes one;
    net::BytesReader here = in.place();
    if (!here.ReadBytes(in.size(), &one)) return InvalidArgument("a RecvTensorsResponse ends too early");
    in.Skip();
    MR_ASSIGN_OR_RETURN(items.emplace_back(), DecodeRecvTensorAnswer(one, allocator));
  }
  MR_RETURN_IF_ERROR(in.End("RecvTensorsResponse"));
  return items;
}

}  // namespace millrace
