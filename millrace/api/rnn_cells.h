// The usual cells, and wrappers around a cell.
//
//   rnn::CellPtr cell = rnn::MultiRnnCell({
//       rnn::DropoutWrapper(rnn::LstmCell(256), {.output_keep_prob = 0.8, .training = training}),
//       rnn::LstmCell(256)});
//
// An option that is out of range, such as a size that is not positive, is an error of the scope that the cell is built
// in.
#pragma once

#include <optional>

#include "millrace/api/layers.h"
#include "millrace/api/rnn_cell.h"

namespace millrace::rnn {

struct BasicRnnCellOptions {
  layers::Activation activation = nullptr;  // tanh by default
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  std::string name = "basic_rnn_cell";
  bool trainable = true;
};
// h' = activation([x, h] kernel + bias). The state is h.
CellPtr BasicRnnCell(int64_t units, const BasicRnnCellOptions& options = {});

struct BasicLstmCellOptions {
  double forget_bias = 1.0;
  layers::Activation activation = nullptr;  // tanh by default
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  std::string name = "basic_lstm_cell";
  bool trainable = true;
};
// An LSTM without peepholes and projection. The state is (c, h).
CellPtr BasicLstmCell(int64_t units, const BasicLstmCellOptions& options = {});

struct LstmCellOptions {
  // Lets the gates see the memory c by diagonal weights.
  bool use_peepholes = false;
  // Limits the memory to [-cell_clip, cell_clip]; 0: no limit.
  double cell_clip = 0;
  // Projects the output to this many units; 0: none. The h of the state then has this size.
  int64_t num_proj = 0;
  // Limits the projected output; 0: no limit.
  double proj_clip = 0;
  double forget_bias = 1.0;
  layers::Activation activation = nullptr;  // tanh by default
  // Also of the peepholes and the projection.
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  std::string name = "lstm_cell";
  bool trainable = true;
};
// i, j, f, o = [x, h] kernel + bias;  c' = sigmoid(f + forget_bias) c + sigmoid(i) activation(j);
// h' = sigmoid(o) activation(c'). The state is (c, h).
//
// Whole sequences of a float cell with tanh and without clipping and projection are one op, TensorFlow's BlockLSTM.
CellPtr LstmCell(int64_t units, const LstmCellOptions& options = {});

struct GruCellOptions {
  layers::Activation activation = nullptr;  // tanh by default
  Initializer kernel_initializer = init::GlorotUniform();
  // By default ones for the gates and zeros for the candidate.
  Initializer bias_initializer = nullptr;
  std::string name = "gru_cell";
  bool trainable = true;
};
// r, u = sigmoid([x, h] gates);  h' = u h + (1 - u) activation([x, r h] candidate). The state is h.
CellPtr GruCell(int64_t units, const GruCellOptions& options = {});

// Cells in layers: each takes the output of the one before. The state is a tuple with one part for each cell.
CellPtr MultiRnnCell(std::vector<CellPtr> cells);

struct DropoutWrapperOptions {
  // The probability of keeping an element of the input, the output and the state (but not the memory c of an LSTM).
  double input_keep_prob = 1;
  double output_keep_prob = 1;
  double state_keep_prob = 1;
  // A bool, or a tensor of one; nothing is dropped if it is false.
  Input training = true;
  // Uses one mask for all time steps and all examples.
  bool variational_recurrent = false;
  std::optional<int64_t> seed = std::nullopt;
};
// Masks of the state differ from step to step except in a replica of a strategy.
CellPtr DropoutWrapper(CellPtr cell, const DropoutWrapperOptions& options = {});

// Adds the input to the output, which must have the same size.
CellPtr ResidualWrapper(CellPtr cell);

// Runs the cell on a device.
CellPtr DeviceWrapper(CellPtr cell, std::string device);

}  // namespace millrace::rnn
