// What travels on a call that streams a step between a master's task and a peer: how it begins, its tensors, how it ends.
//
// Binary, without protobuf and without strings where the edges are numbered (step_edges.h). A large tensor is a piece of the message, its own
// memory. INVALID_ARGUMENT says what is malformed.
#pragma once

#include <string>
#include <vector>

#include "millrace/net/bytes.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/worker.pb.h"
#include "millrace/runtime/rendezvous.h"

namespace millrace {

// A tensor and which edge it is of: by number outside loops, else by key.
struct SteppedTensor {
  int number = -1;  // -1: see `key`
  std::string key = {};
  RendezvousItem item;
};
using SteppedTensors = std::vector<SteppedTensor>;

// Tensors that go together, in a message of their own. `sent_micros` is for statistics; 0: nobody asks.
StatusOr<net::Bytes> EncodeTensors(const SteppedTensors& tensors, int64_t sent_micros);
StatusOr<SteppedTensors> DecodeTensors(const net::Bytes& bytes, Allocator* allocator);

// The request: run this part.
struct StepStart {
  std::string session_handle;
  std::string graph_handle;
  int64_t step_id = 0;
  bool record_timeline = false;
  bool record_partition_graphs = false;
  // A part that neither takes nor gives tensors may be run again and again: the answer then comes when a run fails.
  bool may_repeat = false;
  SteppedTensors feeds = {};
};
StatusOr<net::Bytes> EncodeStepStart(const StepStart& start);
StatusOr<StepStart> DecodeStepStart(const net::Bytes& bytes, Allocator* allocator);

// The answer: the part has ended.
struct StepEnd {
  Status status;
  pb::StepStats step_stats;
  std::vector<pb::GraphDef> partition_graphs = {};
  int64_t sent_micros = 0;
  SteppedTensors tensors = {};  // fetches, and what rides
};
StatusOr<net::Bytes> EncodeStepEnd(const StepEnd& end);
StatusOr<StepEnd> DecodeStepEnd(const net::Bytes& bytes, Allocator* allocator);

}  // namespace millrace
