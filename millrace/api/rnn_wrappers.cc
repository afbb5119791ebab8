// Cells made of other cells: layers, dropout, residual connections, devices.
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/replica.h"
#include "millrace/api/rnn_cells.h"
#include "millrace/api/rnn_sequence.h"

namespace millrace::rnn {
namespace {

class Multi : public Cell {
 public:
  explicit Multi(std::vector<CellPtr> cells) : cells_(std::move(cells)) {}

  std::string name() const override { return "multi_rnn_cell"; }
  int64_t output_size() const override { return cells_.empty() ? 0 : cells_.back()->output_size(); }
  StateSize state_size() const override {
    StateSize size;
    for (const CellPtr& cell : cells_) size.parts.push_back(cell->state_size());
    return size;
  }

  void Build(const Scope& scope, int64_t input_size, DType dtype) override {
    if (cells_.empty()) {
      scope.UpdateStatus(InvalidArgument("a MultiRnnCell in scope '", scope.prefix(), "' needs at least one cell"));
      return;
    }
    const Scope s = scope.SubScope(name());
    for (size_t i = 0; i < cells_.size() && scope.ok(); ++i) {
      cells_[i]->Build(CellScope(s, i), input_size, dtype);
      input_size = cells_[i]->output_size();
    }
  }

  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    const Scope s = scope.SubScope(name());
    Output output = x;
    std::vector<State> states;
    for (size_t i = 0; i < cells_.size(); ++i) {
      Step step = cells_[i]->Next(CellScope(s, i), output, state[i]);
      output = step.output;
      states.push_back(std::move(step.state));
    }
    return {output, State(std::move(states))};
  }

  // Layer by layer: each over the whole sequence.
  Sequence Run(const Scope& scope, const TimeMajor& sequence, const State& start) const override {
    const Scope s = scope.SubScope(name());
    TimeMajor layer = sequence;
    std::vector<State> states;
    for (size_t i = 0; i < cells_.size() && s.ok(); ++i) {
      Sequence result = cells_[i]->Run(CellScope(s, i), layer, start[i]);
      layer.inputs = result.outputs;
      states.push_back(std::move(result.state));
    }
    if (!s.ok()) return {};
    return {layer.inputs, State(std::move(states))};
  }

 private:
  static Scope CellScope(const Scope& s, size_t i) { return s.SubScope(absl::StrCat("cell_", i)); }

  const std::vector<CellPtr> cells_;
};

// A cell that changes what goes in and out of another one, under the other one's name.
class Wrapper : public Cell {
 public:
  explicit Wrapper(CellPtr cell) : cell_(std::move(cell)) {}

  std::string name() const override { return cell_->name(); }
  int64_t output_size() const override { return cell_->output_size(); }
  StateSize state_size() const override { return cell_->state_size(); }
  void Build(const Scope& scope, int64_t input_size, DType dtype) override { cell_->Build(scope, input_size, dtype); }

 protected:
  const CellPtr cell_;
};

class Dropping : public Wrapper {
 public:
  Dropping(CellPtr cell, const DropoutWrapperOptions& options) : Wrapper(std::move(cell)), options_(options) {}

  void Build(const Scope& scope, int64_t input_size, DType dtype) override {
    const auto check = [&](const char* what, double keep) {
      if (keep > 0 && keep <= 1) return;
      scope.UpdateStatus(InvalidArgument("the DropoutWrapper of cell ", name(), " in scope '", scope.prefix(),
                                         "': ", what, " is ", keep, ", and must be in (0, 1]"));
    };
    check("input_keep_prob", options_.input_keep_prob);
    check("output_keep_prob", options_.output_keep_prob);
    check("state_keep_prob", options_.state_keep_prob);
    Wrapper::Build(scope, input_size, dtype);
    if (!options_.variational_recurrent || !scope.ok() || built_) return;
    built_ = true;
    // A mask is what dropout makes of ones: 0, or what the kept elements are multiplied by.
    const Scope s = scope.SubScope("dropout");
    const auto mask = [&](double keep, int64_t size, int salt) {
      return keep == 1 ? Output() : Drop(s, init::Ones()(s, Shape({1, size}), dtype), keep, salt);
    };
    input_mask_ = mask(options_.input_keep_prob, input_size, 0);
    output_mask_ = mask(options_.output_keep_prob, output_size(), 1);
    MakeStateMasks(state_size(), mask);
  }

  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    Step step = cell_->Next(scope, Dropped(scope, x, options_.input_keep_prob, input_mask_, 0), state);
    if (options_.state_keep_prob < 1) {
      size_t next = 0;
      step.state = DroppedState(scope, step.state, state_size(), &next);
    }
    step.output = Dropped(scope, step.output, options_.output_keep_prob, output_mask_, 1);
    return step;
  }

  // Inputs and outputs of all time steps at once.
  Sequence Run(const Scope& s, const TimeMajor& sequence, const State& start) const override {
    if (options_.state_keep_prob < 1) return Cell::Run(s, sequence, start);
    TimeMajor inner = sequence;
    inner.inputs = Dropped(s, sequence.inputs, options_.input_keep_prob, input_mask_, 0);
    Sequence result = cell_->Run(s, inner, start);
    result.outputs = Dropped(s, result.outputs, options_.output_keep_prob, output_mask_, 1);
    return result;
  }

 private:
  Output Drop(const Scope& s, const Output& x, double keep, int salt) const {
    layers::DropoutOptions options;
    if (options_.seed) options.seed = *options_.seed + salt;
    return layers::Dropout(s, x, 1 - keep, options_.training, options);
  }
  Output Dropped(const Scope& s, const Output& x, double keep, const Output& mask, int salt) const {
    if (keep == 1 || !s.ok()) return x;
    return mask.empty() ? Drop(s, x, keep, salt) : Op(s, "Mul", {x, mask});
  }

  // The memory c of an LSTM, the first of two tensors, is kept.
  static bool IsLstm(const StateSize& size) {
    return size.parts.size() == 2 && !size.parts[0].is_tuple() && !size.parts[1].is_tuple();
  }
  template <typename Mask>
  void MakeStateMasks(const StateSize& size, const Mask& mask) {
    if (!size.is_tuple()) {
      state_masks_.push_back(mask(options_.state_keep_prob, size.size, 2 + static_cast<int>(state_masks_.size())));
    }
    for (size_t i = IsLstm(size) ? 1 : 0; i < size.parts.size(); ++i) MakeStateMasks(size.parts[i], mask);
  }
  State DroppedState(const Scope& s, const State& state, const StateSize& size, size_t* next) const {
    if (!size.is_tuple()) {
      const size_t i = (*next)++;
      const Output mask = i < state_masks_.size() ? state_masks_[i] : Output();
      return Dropped(s, state.tensor(), options_.state_keep_prob, mask, 2 + static_cast<int>(i));
    }
    std::vector<State> parts;
    for (size_t i = 0; i < size.parts.size(); ++i) {
      const bool keep = i == 0 && IsLstm(size);
      parts.push_back(keep ? state[0] : DroppedState(s, state[i], size.parts[i], next));
    }
    return State(std::move(parts));
  }

  const DropoutWrapperOptions options_;
  // With variational_recurrent only.
  bool built_ = false;
  Output input_mask_, output_mask_;
  std::vector<Output> state_masks_;
};

class Residual : public Wrapper {
 public:
  using Wrapper::Wrapper;

  void Build(const Scope& scope, int64_t input_size, DType dtype) override {
    if (input_size != output_size()) {
      scope.UpdateStatus(InvalidArgument("the ResidualWrapper of cell ", name(), " in scope '", scope.prefix(),
                                         "' adds inputs with ", input_size, " columns to outputs with ",
                                         output_size()));
    }
    Wrapper::Build(scope, input_size, dtype);
  }
  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    Step step = cell_->Next(scope, x, state);
    step.output = Op(scope, "AddV2", {x, step.output});
    return step;
  }
  Sequence Run(const Scope& s, const TimeMajor& sequence, const State& start) const override {
    Sequence result = cell_->Run(s, sequence, start);
    result.outputs = Op(s, "AddV2", {WithinLength(s, sequence.inputs, sequence.length), result.outputs});
    return result;
  }
};

class OnDevice : public Wrapper {
 public:
  OnDevice(CellPtr cell, std::string device) : Wrapper(std::move(cell)), device_(std::move(device)) {}

  void Build(const Scope& scope, int64_t input_size, DType dtype) override {
    Wrapper::Build(scope.WithDevice(device_), input_size, dtype);
  }
  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    return cell_->Next(scope.WithDevice(device_), x, state);
  }
  Sequence Run(const Scope& scope, const TimeMajor& sequence, const State& start) const override {
    return cell_->Run(scope.WithDevice(device_), sequence, start);
  }

 private:
  const std::string device_;
};

}  // namespace

CellPtr MultiRnnCell(std::vector<CellPtr> cells) { return std::make_shared<Multi>(std::move(cells)); }

CellPtr DropoutWrapper(CellPtr cell, const DropoutWrapperOptions& options) {
  return std::make_shared<Dropping>(std::move(cell), options);
}

CellPtr ResidualWrapper(CellPtr cell) { return std::make_shared<Residual>(std::move(cell)); }

CellPtr DeviceWrapper(CellPtr cell, std::string device) {
  return std::make_shared<OnDevice>(std::move(cell), std::move(device));
}

}  // namespace millrace::rnn
