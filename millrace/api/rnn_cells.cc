#include "millrace/api/rnn_cells.h"

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/partitioned_variable.h"
#include "millrace/api/rnn_sequence.h"
#include "millrace/api/variable_creation.h"

namespace millrace::rnn {
namespace {

// Common to the cells that have variables: a name, a number of units, and what the variables were created for.
class WeightedCell : public Cell {
 public:
  WeightedCell(std::string name, int64_t units, layers::Activation activation, Initializer kernel_initializer,
               Initializer bias_initializer, bool trainable)
      : name_(std::move(name)),
        units_(units),
        activation_(std::move(activation)),
        kernel_initializer_(std::move(kernel_initializer)),
        bias_initializer_(std::move(bias_initializer)),
        trainable_(trainable) {}

  std::string name() const override { return name_; }
  int64_t output_size() const override { return units_; }
  StateSize state_size() const override { return {.size = units_}; }

  void Build(const Scope& scope, int64_t input_size, DType dtype) final {
    if (!scope.ok()) return;
    if (input_size_ < 0) {
      const Scope s = scope.SubScope(name_);
      if (units_ <= 0) {
        s.UpdateStatus(
            InvalidArgument("cell ", s.prefix(), ": the number of units is ", units_, ", and must be positive"));
        return;
      }
      input_size_ = input_size;
      dtype_ = dtype;
      MakeVariables(s, input_size);
    } else if (input_size != input_size_ || dtype != dtype_) {
      scope.UpdateStatus(InvalidArgument("cell ", name_, " in scope '", scope.prefix(), "' was built for inputs of ",
                                         DTypeName(dtype_), " with ", input_size_, " columns, and is now given ",
                                         DTypeName(dtype), " with ", input_size));
    }
  }

 protected:
  virtual void MakeVariables(const Scope& s, int64_t input_size) = 0;

  Output Weight(const Scope& s, const char* name, const Shape& shape, const Initializer& init) const {
    const PartitionedVar variable(s, name, shape, init, {.dtype = dtype_, .trainable = trainable_});
    return api_internal::WholeOf(s, variable);
  }
  Output Activate(const Scope& s, const Output& x) const {
    return activation_ ? activation_(s, x) : Op(s, "Tanh", {x});
  }
  // [a, b] kernel + bias
  static Output Affine(const Scope& s, const Output& a, const Output& b, const Output& kernel, const Output& bias) {
    return Op(s, "BiasAdd", {Op(s, "MatMul", {Op(s, "ConcatV2", {InputList{a, b}, 1}), kernel}), bias});
  }
  static std::vector<Output> Split(const Scope& s, const Output& x, int parts) {
    const Operation split = AddOp(s, "Split", {1, x}, {{"num_split", parts}});
    return split.empty() ? std::vector<Output>(static_cast<size_t>(parts)) : split.outputs(0, parts);
  }
  static Output Sigmoid(const Scope& s, const Output& x) { return Op(s, "Sigmoid", {x}); }
  static Output Mul(const Scope& s, const Output& a, const Output& b) { return Op(s, "Mul", {a, b}); }

  const std::string name_;
  const int64_t units_;
  const layers::Activation activation_;
  const Initializer kernel_initializer_, bias_initializer_;
  const bool trainable_;
  DType dtype_ = DType::kInvalid;
  int64_t input_size_ = -1;  // -1 before Build
};

class BasicRnn : public WeightedCell {
 public:
  BasicRnn(int64_t units, const BasicRnnCellOptions& o)
      : WeightedCell(o.name, units, o.activation, o.kernel_initializer, o.bias_initializer, o.trainable) {}

  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    const Scope s = scope.SubScope(name_);
    const Output h = Activate(s, Affine(s, x, state.tensor(), kernel_, bias_));
    return {h, h};
  }

 protected:
  void MakeVariables(const Scope& s, int64_t input_size) override {
    kernel_ = Weight(s, "kernel", Shape({input_size + units_, units_}), kernel_initializer_);
    bias_ = Weight(s, "bias", Shape({units_}), bias_initializer_);
  }

 private:
  Output kernel_, bias_;
};

class Lstm : public WeightedCell {
 public:
  Lstm(int64_t units, const LstmCellOptions& o)
      : WeightedCell(o.name, units, o.activation, o.kernel_initializer, o.bias_initializer, o.trainable), options_(o) {}

  int64_t output_size() const override { return options_.num_proj > 0 ? options_.num_proj : units_; }
  StateSize state_size() const override { return {.parts = {{.size = units_}, {.size = output_size()}}}; }

  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    const Scope s = scope.SubScope(name_);
    const Output c_before = state.c();
    const std::vector<Output> gates = Split(s, Affine(s, x, state.h(), kernel_, bias_), 4);
    const auto peep = [&](const Output& gate, const Output& weight, const Output& c) {
      return weight.empty() ? gate : Op(s, "AddV2", {gate, Mul(s, c, weight)});
    };
    const Output input = Sigmoid(s, peep(gates[0], peep_i_, c_before));
    const Output forget = Sigmoid(s, peep(Op(s, "AddV2", {gates[2], options_.forget_bias}), peep_f_, c_before));
    Output c = Op(s, "AddV2", {Mul(s, forget, c_before), Mul(s, input, Activate(s, gates[1]))});
    c = Clip(s, c, options_.cell_clip);
    Output h = Mul(s, Sigmoid(s, peep(gates[3], peep_o_, c)), Activate(s, c));
    if (options_.num_proj > 0) h = Clip(s, Op(s, "MatMul", {h, projection_}), options_.proj_clip);
    return {h, State({c, h})};
  }

  Sequence Run(const Scope& scope, const TimeMajor& sequence, const State& start) const override {
    if (activation_ || options_.cell_clip > 0 || options_.num_proj > 0 || dtype_ != DType::kFloat) {
      return Cell::Run(scope, sequence, start);
    }
    const Scope s = scope.SubScope(name_);
    const Output none = options_.use_peepholes ? Output() : init::Zeros()(s, Shape({units_}), dtype_);
    const auto peephole = [&](const Output& weight) { return weight.empty() ? none : weight; };
    const Output steps = Op(s, "Cast", {DimOf(s, sequence.inputs, 0)}, {{"DstT", DType::kInt64}});
    const Operation lstm =
        AddOp(s, "BlockLSTM",
              {steps, sequence.inputs, start.c(), start.h(), kernel_, peephole(peep_i_), peephole(peep_f_),
               peephole(peep_o_), bias_},
              {{"forget_bias", options_.forget_bias}, {"cell_clip", -1.0}, {"use_peephole", options_.use_peepholes}});
    if (lstm.empty()) return {};
    const Output c = lstm.output(1), h = lstm.output(6);
    return {WithinLength(s, h, sequence.length),
            State({LastOf(s, c, start.c(), sequence.length), LastOf(s, h, start.h(), sequence.length)})};
  }

 protected:
  void MakeVariables(const Scope& s, int64_t input_size) override {
    if (options_.num_proj < 0 || options_.cell_clip < 0 || options_.proj_clip < 0) {
      s.UpdateStatus(InvalidArgument("cell ", s.prefix(), ": num_proj ", options_.num_proj, ", cell_clip ",
                                     options_.cell_clip, " and proj_clip ", options_.proj_clip,
                                     " must not be negative"));
      return;
    }
    kernel_ = Weight(s, "kernel", Shape({input_size + output_size(), 4 * units_}), kernel_initializer_);
    bias_ = Weight(s, "bias", Shape({4 * units_}), bias_initializer_);
    if (options_.use_peepholes) {
      peep_f_ = Weight(s, "w_f_diag", Shape({units_}), kernel_initializer_);
      peep_i_ = Weight(s, "w_i_diag", Shape({units_}), kernel_initializer_);
      peep_o_ = Weight(s, "w_o_diag", Shape({units_}), kernel_initializer_);
    }
    if (options_.num_proj > 0) {
      projection_ = Weight(s.SubScope("projection"), "kernel", Shape({units_, options_.num_proj}), kernel_initializer_);
    }
  }

 private:
  static Output Clip(const Scope& s, const Output& x, double limit) {
    return limit > 0 ? Op(s, "ClipByValue", {x, -limit, limit}) : x;
  }

  const LstmCellOptions options_;
  Output kernel_, bias_, peep_i_, peep_f_, peep_o_, projection_;
};

class Gru : public WeightedCell {
 public:
  Gru(int64_t units, const GruCellOptions& o)
      : WeightedCell(o.name, units, o.activation, o.kernel_initializer, o.bias_initializer, o.trainable) {}

  Step Next(const Scope& scope, const Output& x, const State& state) const override {
    const Scope s = scope.SubScope(name_);
    const Output before = state.tensor();
    const std::vector<Output> gates = Split(s, Sigmoid(s, Affine(s, x, before, gates_kernel_, gates_bias_)), 2);
    const Output candidate = Activate(s, Affine(s, x, Mul(s, gates[0], before), candidate_kernel_, candidate_bias_));
    // u h + (1 - u) candidate
    const Output h = Op(s, "AddV2", {Mul(s, gates[1], before), Mul(s, Op(s, "Sub", {1, gates[1]}), candidate)});
    return {h, h};
  }

 protected:
  void MakeVariables(const Scope& s, int64_t input_size) override {
    const Scope gates = s.SubScope("gates"), candidate = s.SubScope("candidate");
    const int64_t rows = input_size + units_;
    gates_kernel_ = Weight(gates, "kernel", Shape({rows, 2 * units_}), kernel_initializer_);
    gates_bias_ = Weight(gates, "bias", Shape({2 * units_}), bias_initializer_ ? bias_initializer_ : init::Ones());
    candidate_kernel_ = Weight(candidate, "kernel", Shape({rows, units_}), kernel_initializer_);
    candidate_bias_ = Weight(candidate, "bias", Shape({units_}), bias_initializer_ ? bias_initializer_ : init::Zeros());
  }

 private:
  Output gates_kernel_, gates_bias_, candidate_kernel_, candidate_bias_;
};

}  // namespace

CellPtr BasicRnnCell(int64_t units, const BasicRnnCellOptions& options) {
  return std::make_shared<BasicRnn>(units, options);
}

CellPtr BasicLstmCell(int64_t units, const BasicLstmCellOptions& o) {
  return LstmCell(units, {.forget_bias = o.forget_bias,
                          .activation = o.activation,
                          .kernel_initializer = o.kernel_initializer,
                          .bias_initializer = o.bias_initializer,
                          .name = o.name,
                          .trainable = o.trainable});
}

CellPtr LstmCell(int64_t units, const LstmCellOptions& options) { return std::make_shared<Lstm>(units, options); }

CellPtr GruCell(int64_t units, const GruCellOptions& options) { return std::make_shared<Gru>(units, options); }

}  // namespace millrace::rnn
