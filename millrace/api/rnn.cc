#include "millrace/api/rnn.h"

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"
#include "millrace/api/rnn_sequence.h"

namespace millrace::rnn {
namespace {

Output SwapTimeAndBatch(const Scope& s, const Output& x) {
  return Op(s, "Transpose", {x, std::vector<int32_t>{1, 0, 2}});
}

// The tensor itself, which an op that fails the step on a wrong length runs before.
Output CheckedLength(const Scope& s, const Input& sequence_length, const Output& steps, int64_t batch) {
  const Output given = sequence_length.In(s, DType::kInt32);
  if (!s.ok()) return {};
  if ((given.dtype() != DType::kInt32 && given.dtype() != DType::kInt64) ||
      !given.shape().IsCompatibleWith(PartialShape({batch}))) {
    s.UpdateStatus(InvalidArgument("rnn ", s.prefix(), ": sequence_length is ", DTypeName(given.dtype()), " ",
                                   given.shape().ToString(), ", and must be int32 or int64 [", batch, "]"));
    return {};
  }
  const Output length = api_internal::Cast(s, given, DType::kInt32);
  const Output right = Op(s, "LogicalAnd", {Op(s, "GreaterEqual", {length, 0}), Op(s, "LessEqual", {length, steps})});
  const Output all = Op(s, "All", {right, 0});
  const std::string what =
      absl::StrCat("rnn ", s.prefix(), ": sequence_length must be between 0 and the number of time steps");
  const Operation check = AddOp(s, "Assert", {all, InputList{what, steps, "sequence_length:", length}});
  return Op(s.WithControlDependencies({check}).WithOpName("sequence_length"), "Identity", {length});
}

// The known batch size of the inputs and of all states; -1 if there is none. Two that differ are an error.
int64_t CommonBatch(const Scope& s, int64_t batch, const State& state) {
  for (const Output& t : state.Tensors()) {
    const int64_t other = t.shape().known_rank() && t.shape().rank() > 0 ? t.shape().dim(0) : -1;
    if (batch >= 0 && other >= 0 && batch != other) {
      s.UpdateStatus(InvalidArgument("rnn ", s.prefix(), ": the inputs have a batch of ", batch,
                                     ", but the initial state ", t.name(), " has one of ", other));
    }
    if (batch < 0) batch = other;
  }
  return batch;
}

// Prepares what both kinds of networks need: the cell's variables and the state that it starts with.
bool Prepare(const Scope& s, const CellPtr& cell, int64_t depth, DType dtype, const Output& batch, State* start) {
  if (!s.ok()) return false;
  if (cell == nullptr) {
    s.UpdateStatus(InvalidArgument("rnn ", s.prefix(), ": there is no cell"));
    return false;
  }
  cell->Build(s, depth, dtype);
  if (!s.ok()) return false;
  if (start->IsNone()) {
    *start = cell->ZeroState(s, batch, dtype);
    return s.ok();
  }
  return CheckState(s, absl::StrCat("rnn ", s.prefix(), ": the initial state"), *start, cell->state_size());
}

// DynamicRnn in a scope of its own.
Sequence RunIn(const Scope& s, const CellPtr& cell, const Input& inputs, const DynamicRnnOptions& options) {
  const Output given = inputs.In(s);
  if (!s.ok()) return {};
  const PartialShape shape = given.shape();
  if (!shape.known_rank() || shape.rank() != 3 || shape.dim(2) < 0) {
    s.UpdateStatus(InvalidArgument("rnn ", s.prefix(), ": the input ", given.name(), " has shape ", shape.ToString(),
                                   ", and must have three dimensions (",
                                   options.time_major ? "time, batch" : "batch, time",
                                   ", depth) of which the last is known"));
    return {};
  }
  TimeMajor sequence{.inputs = options.time_major ? given : SwapTimeAndBatch(s, given),
                     .parallel_iterations = options.parallel_iterations};
  State start = options.initial_state;
  const int64_t batch = CommonBatch(s, shape.dim(options.time_major ? 1 : 0), start);
  const Output& x = sequence.inputs;
  if (!options.sequence_length.is_nothing()) {
    sequence.length = CheckedLength(s, options.sequence_length, DimOf(s, x, 0), batch);
  }
  if (!Prepare(s, cell, shape.dim(2), given.dtype(), DimOf(s, x, 1), &start)) return {};
  Sequence result = cell->Run(s, sequence, start);
  if (!options.time_major && s.ok()) result.outputs = SwapTimeAndBatch(s, result.outputs);
  return result;
}

// x [batch, time, depth] or [time, batch, depth] with each sequence in reverse.
Output Reversed(const Scope& s, const Output& x, const BidirectionalOptions& options) {
  const int time = options.time_major ? 0 : 1;
  if (options.sequence_length.is_nothing()) return Op(s, "ReverseV2", {x, std::vector<int32_t>{time}});
  return Op(s, "ReverseSequence", {x, options.sequence_length.In(s, DType::kInt32)},
            {{"seq_dim", time}, {"batch_dim", 1 - time}});
}

}  // namespace

Sequence DynamicRnn(const Scope& scope, const CellPtr& cell, const Input& inputs, const DynamicRnnOptions& options) {
  return RunIn(scope.ForComposite("rnn"), cell, inputs, options);
}

StaticSequence StaticRnn(const Scope& scope, const CellPtr& cell, const std::vector<Output>& inputs,
                         const StaticRnnOptions& options) {
  const Scope s = scope.ForComposite("rnn");
  if (!s.ok()) return {};
  int64_t batch = -1, depth = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PartialShape shape = inputs[i].shape();
    const PartialShape wanted({batch, depth});
    if (!shape.known_rank() || shape.rank() != 2 || shape.dim(1) < 0 || !shape.IsCompatibleWith(wanted) ||
        inputs[i].dtype() != inputs[0].dtype()) {
      s.UpdateStatus(InvalidArgument(
          "rnn ", s.prefix(), ": input ", i, " is ", DTypeName(inputs[i].dtype()), " ", shape.ToString(),
          ", and must be ", DTypeName(inputs[0].dtype()),
          " with two dimensions (batch, depth), of which the last is known, compatible with ", wanted.ToString()));
      return {};
    }
    depth = shape.dim(1);
    if (batch < 0) batch = shape.dim(0);
  }
  if (inputs.empty()) {
    s.UpdateStatus(InvalidArgument("rnn ", s.prefix(), ": there are no inputs"));
    return {};
  }
  State state = options.initial_state;
  batch = CommonBatch(s, batch, state);
  Output length;
  if (!options.sequence_length.is_nothing()) {
    const Output steps = Input(static_cast<int32_t>(inputs.size())).In(s.WithOpName("steps"));
    length = CheckedLength(s, options.sequence_length, steps, batch);
  }
  if (!Prepare(s, cell, depth, inputs[0].dtype(), DimOf(s, inputs[0], 0), &state)) return {};
  if (!length.empty()) length = Op(s, "ExpandDims", {length, 1});
  StaticSequence result;
  for (size_t i = 0; i < inputs.size() && s.ok(); ++i) {
    Step step = cell->Next(s, inputs[i], state);
    if (!length.empty() && s.ok()) {
      const Output within = Op(s, "Less", {static_cast<int32_t>(i), length});
      step.output = Op(s, "SelectV2", {within, step.output, Op(s, "ZerosLike", {step.output})});
      const std::vector<Output> before = state.Tensors();
      std::vector<Output> after = step.state.Tensors();
      for (size_t t = 0; t < after.size(); ++t) after[t] = Op(s, "SelectV2", {within, after[t], before[t]});
      step.state = step.state.WithTensors(after);
    }
    state = step.state;
    result.outputs.push_back(step.output);
  }
  result.state = state;
  return result;
}

BidirectionalSequence BidirectionalDynamicRnn(const Scope& scope, const CellPtr& forward, const CellPtr& backward,
                                              const Input& inputs, const BidirectionalOptions& options) {
  const Scope s = scope.ForComposite("bidirectional_rnn");
  const Output x = inputs.In(s);
  if (!s.ok()) return {};
  DynamicRnnOptions each{.sequence_length = options.sequence_length,
                         .initial_state = options.initial_state_forward,
                         .time_major = options.time_major,
                         .parallel_iterations = options.parallel_iterations};
  BidirectionalSequence result;
  result.forward = RunIn(s.SubScope("fw"), forward, x, each);
  if (!s.ok()) return {};
  each.initial_state = options.initial_state_backward;
  const Scope bw = s.SubScope("bw");
  result.backward = RunIn(bw, backward, Reversed(bw, x, options), each);
  if (!s.ok()) return {};
  result.backward.outputs = Reversed(bw, result.backward.outputs, options);
  return result;
}

}  // namespace millrace::rnn
