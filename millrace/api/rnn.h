// Recurrent networks over sequences.
//
//   rnn::Sequence r = rnn::DynamicRnn(scope, rnn::LstmCell(128), words, {.sequence_length = lengths});
//   r.outputs;                    // [batch, time, 128]; zeros beyond a sequence's length
//   r.state.h();                  // [batch, 128]: the output at the end of each sequence
#pragma once

#include <vector>

#include "millrace/api/rnn_cell.h"
#include "millrace/api/rnn_cells.h"

namespace millrace::rnn {

struct DynamicRnnOptions {
  // int32 or int64 [batch]. By default all sequences have the full length. A length that is negative or exceeds the
  // number of time steps fails the step, naming this network.
  Input sequence_length = Input();
  // Zeros by default.
  State initial_state = State();
  // Inputs and outputs are [time, batch, depth] instead of [batch, time, depth].
  bool time_major = false;
  int parallel_iterations = 32;
};
// Runs `cell` over `inputs`, whose last dimension must be known. The variables are in the scope that WithOpName names,
// "rnn" by default.
Sequence DynamicRnn(const Scope& scope, const CellPtr& cell, const Input& inputs,
                    const DynamicRnnOptions& options = {});

struct StaticRnnOptions {
  Input sequence_length = Input();
  State initial_state = State();
};
struct StaticSequence {
  std::vector<Output> outputs;
  State state;
};
// The same, unrolled: inputs and outputs are one tensor [batch, depth] for each time step.
StaticSequence StaticRnn(const Scope& scope, const CellPtr& cell, const std::vector<Output>& inputs,
                         const StaticRnnOptions& options = {});

struct BidirectionalOptions {
  Input sequence_length = Input();
  State initial_state_forward = State();
  State initial_state_backward = State();
  bool time_major = false;
  int parallel_iterations = 32;
};
struct BidirectionalSequence {
  Sequence forward;
  // In the order of the inputs; its state is that after the first input.
  Sequence backward;
};
// Two networks, of which one reads each sequence from its end. Variables are in "bidirectional_rnn/fw" and
// "bidirectional_rnn/bw".
BidirectionalSequence BidirectionalDynamicRnn(const Scope& scope, const CellPtr& forward, const CellPtr& backward,
                                              const Input& inputs, const BidirectionalOptions& options = {});

}  // namespace millrace::rnn
