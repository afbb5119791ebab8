// The messages of a streaming call that runs a step between a master's task and a peer: its start, its tensors, its
// end.
//
// The format is binary, without protobuf, and without strings if the edges are numbered (step_edges.h). A large tensor
// is sent as a piece that shares the tensor's memory. INVALID_ARGUMENT says what is malformed.
#pragma once

#include <string>
#include <vector>

#include "millrace/net/bytes.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/worker.pb.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/run_identity.h"

namespace millrace {

// A tensor and its edge, identified by number outside of loops and otherwise by key.
struct SteppedTensor {
  int number = -1;  // -1: see `key`
  std::string key = {};
  RendezvousItem item;
};
using SteppedTensors = std::vector<SteppedTensor>;

// A group of tensors in one message. `sent_micros` is for statistics; 0 if not needed.
StatusOr<net::Bytes> EncodeTensors(const SteppedTensors& tensors, int64_t sent_micros);
StatusOr<SteppedTensors> DecodeTensors(const net::Bytes& bytes, Allocator* allocator);

// The request to run a part.
struct StepStart {
  std::string session_handle;
  std::string graph_handle;
  int64_t step_id = 0;
  bool record_timeline = false;
  bool record_partition_graphs = false;
  // A part without inputs and outputs may be run repeatedly; the answer then comes when a run fails.
  bool may_repeat = false;
  RunIdentity run = {};
  int64_t collective_step = 0;  // see RunGraphCall
  SteppedTensors feeds = {};
};
StatusOr<net::Bytes> EncodeStepStart(const StepStart& start);
StatusOr<StepStart> DecodeStepStart(const net::Bytes& bytes, Allocator* allocator);

// The answer when the part has ended.
struct StepEnd {
  Status status;
  pb::StepStats step_stats;
  std::vector<pb::GraphDef> partition_graphs = {};
  int64_t sent_micros = 0;
  SteppedTensors tensors = {};  // fetches, and piggybacked tensors
};
StatusOr<net::Bytes> EncodeStepEnd(const StepEnd& end);
StatusOr<StepEnd> DecodeStepEnd(const net::Bytes& bytes, Allocator* allocator);

}  // namespace millrace
