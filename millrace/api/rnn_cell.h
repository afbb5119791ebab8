// Cells of recurrent networks: what a network computes in one time step.
//
//   rnn::CellPtr cell = rnn::LstmCell(128);
//   rnn::Sequence out = rnn::DynamicRnn(scope, cell, inputs);      // rnn.h
//
// A cell creates its variables the first time it is used and uses the same ones afterwards, so a cell that is used
// twice shares its weights. Their names are TensorFlow's: "rnn/lstm_cell/kernel".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/api/initializers.h"
#include "millrace/api/input.h"

namespace millrace::rnn {

// The state of a cell: one tensor [batch, size], or a tuple of states. Cheap to copy.
class State {
 public:
  // No state; IsNone() is true.
  State() = default;
  State(const Output& tensor) : tensor_(tensor) {}  // NOLINT
  explicit State(std::vector<State> parts) : parts_(std::move(parts)), is_tuple_(true) {}

  bool IsNone() const { return !is_tuple_ && tensor_.empty(); }
  bool is_tuple() const { return is_tuple_; }
  // Empty for a tuple.
  const Output& tensor() const { return tensor_; }
  // Empty for a tensor.
  const std::vector<State>& parts() const { return parts_; }
  const State& operator[](size_t i) const { return parts_[i]; }
  // The two tensors of an LSTM's state: memory and output.
  const Output& c() const { return parts_[0].tensor_; }
  const Output& h() const { return parts_[1].tensor_; }

  // All tensors, from left to right.
  std::vector<Output> Tensors() const;
  // The same structure with other tensors, as many as Tensors() has.
  State WithTensors(const std::vector<Output>& tensors) const;

 private:
  Output tensor_;
  std::vector<State> parts_;
  bool is_tuple_ = false;
};

// The sizes of a state, in its structure.
struct StateSize {
  int64_t size = 0;
  std::vector<StateSize> parts = {};

  bool is_tuple() const { return !parts.empty(); }
  std::string ToString() const;  // "128", "(128, 128)"
};

// What one time step gives: an output [batch, output_size] and the next state.
struct Step {
  Output output;
  State state;
};

// The inputs of a whole sequence, [time, batch, depth].
struct TimeMajor {
  Output inputs;
  // int32 [batch], checked to be at most the number of time steps; empty if all sequences have the full length.
  Output length = {};
  int parallel_iterations = 32;
};

// What a whole sequence gives: the outputs of all time steps and the last state of each sequence.
struct Sequence {
  Output outputs;
  State state;
};

// Implement name, state_size, output_size, Build and Next for a cell of your own.
class Cell {
 public:
  virtual ~Cell() = default;

  // The name of the cell's scope, such as "lstm_cell".
  virtual std::string name() const = 0;
  virtual StateSize state_size() const = 0;
  virtual int64_t output_size() const = 0;

  // Creates the variables for inputs [batch, input_size] in a sub-scope of `scope`, the first time that it is called.
  // Afterwards the scope fails with INVALID_ARGUMENT if the input size or type is another one. Call it outside of loop
  // bodies; DynamicRnn and StaticRnn do.
  virtual void Build(const Scope& scope, int64_t input_size, DType dtype) = 0;

  // One time step. Requires Build.
  virtual Step Next(const Scope& scope, const Output& input, const State& state) const = 0;

  // All time steps: outputs beyond a sequence's length are zeros, and the state stays as it was at its end. By default
  // a loop of the graph over Next.
  virtual Sequence Run(const Scope& scope, const TimeMajor& sequence, const State& start) const;

  // Zeros for a batch of `batch` (int32 scalar).
  State ZeroState(const Scope& scope, const Input& batch, DType dtype = DType::kFloat) const;
};
using CellPtr = std::shared_ptr<Cell>;

// True if `state` has the structure and the sizes of `size`. Otherwise the scope fails with INVALID_ARGUMENT, which
// names `what` and both.
bool CheckState(const Scope& scope, const std::string& what, const State& state, const StateSize& size);

}  // namespace millrace::rnn
