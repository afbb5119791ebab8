// Encodes and decodes the messages that carry tensors, without copying large tensors through protobuf.
//
// Encoding appends a tensor's own buffer to the message as a piece; decoding reads the content from the received pieces
// directly into a new tensor's buffer. Fields in any order, typed values, strings and unknown fields are handled as by
// protobuf. INVALID_ARGUMENT names the malformed message and the tensor in it; it is also returned when an encoded
// message would exceed protobuf's limit of 2 GB.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/net/bytes.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/worker.pb.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/run_identity.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The identity of a run in a message. An identity that is not given has no field.
pb::MillraceRun ToProto(const RunIdentity& identity);
RunIdentity FromProto(const pb::MillraceRun& run);

struct RunStepCall {
  std::string session_handle;
  NamedTensors feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  pb::RunOptions options;
  std::string partial_run_handle;
  bool store_errors_in_response_body = false;
  int64_t request_id = 0;
};
struct RunStepAnswer {
  NamedTensors tensors;
  pb::RunMetadata metadata;
  Status status;  // the status in the response body
};
StatusOr<net::Bytes> EncodeRunStep(const RunStepCall& call);
StatusOr<RunStepCall> DecodeRunStep(const net::Bytes& bytes);
StatusOr<net::Bytes> EncodeRunStepAnswer(const RunStepAnswer& answer);
StatusOr<RunStepAnswer> DecodeRunStepAnswer(const net::Bytes& bytes);

struct RunCallableCall {
  std::string session_handle;
  int64_t handle = 0;
  std::vector<Tensor> feeds;
  int64_t request_id = 0;
  RunIdentity run = {};
};
struct RunCallableAnswer {
  std::vector<Tensor> fetches;
  pb::RunMetadata metadata;
};
StatusOr<net::Bytes> EncodeRunCallable(const RunCallableCall& call);
StatusOr<RunCallableCall> DecodeRunCallable(const net::Bytes& bytes);
StatusOr<net::Bytes> EncodeRunCallableAnswer(const RunCallableAnswer& answer);
StatusOr<RunCallableAnswer> DecodeRunCallableAnswer(const net::Bytes& bytes);

struct RunGraphCall {
  std::string session_handle;
  bool create_worker_session_called = true;
  std::string graph_handle;
  int64_t step_id = 0;
  pb::ExecutorOpts exec_opts;
  NamedTensors send;                   // by full rendezvous keys
  std::vector<std::string> recv_keys;  // likewise
  bool is_partial = false;
  bool is_last_partial_run = false;
  bool store_errors_in_response_body = true;
  int64_t request_id = 0;
  RunIdentity run = {};
  // The id under which collective ops exchange buffers with those of other masters' steps; 0: step_id.
  int64_t collective_step = 0;
};
struct RunGraphAnswer {
  NamedTensors recv;
  pb::StepStats step_stats;
  std::vector<pb::GraphDef> partition_graphs;
  Status status;  // the status in the response body
};
StatusOr<net::Bytes> EncodeRunGraph(const RunGraphCall& call);
StatusOr<RunGraphCall> DecodeRunGraph(const net::Bytes& bytes);
StatusOr<net::Bytes> EncodeRunGraphAnswer(const RunGraphAnswer& answer);
StatusOr<RunGraphAnswer> DecodeRunGraphAnswer(const net::Bytes& bytes);

// A RecvTensorResponse. The scalar fields come before the tensor, as in TensorFlow. If `large`, it may exceed
// protobuf's limit, for a transport that supports that; this codec can read it.
StatusOr<net::Bytes> EncodeRecvTensorAnswer(const RendezvousItem& item, int64_t send_start_micros, bool large = false);
StatusOr<RendezvousItem> DecodeRecvTensorAnswer(const net::Bytes& bytes, Allocator* allocator);

// Millrace's own RecvTensors: field 1 is the step, fields 2 are keys; the answer has a RecvTensorResponse in field 1
// for each key.
struct RecvTensorsCall {
  int64_t step_id = 0;
  std::vector<std::string> keys;
};
StatusOr<net::Bytes> EncodeRecvTensors(int64_t step_id, const std::vector<std::string>& keys);
StatusOr<RecvTensorsCall> DecodeRecvTensors(const net::Bytes& bytes);
StatusOr<net::Bytes> EncodeRecvTensorsAnswer(const std::vector<RendezvousItem>& items, int64_t send_start_micros);
StatusOr<std::vector<RendezvousItem>> DecodeRecvTensorsAnswer(const net::Bytes& bytes, Allocator* allocator);

}  // namespace millrace
