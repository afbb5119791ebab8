#include "millrace/api/rnn_cell.h"

#include "absl/strings/str_join.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/rnn_sequence.h"

namespace millrace::rnn {
namespace {

void AppendTensors(const State& state, std::vector<Output>* to) {
  if (!state.is_tuple()) to->push_back(state.tensor());
  for (const State& part : state.parts()) AppendTensors(part, to);
}

State Replaced(const State& state, const std::vector<Output>& tensors, size_t* next) {
  if (!state.is_tuple()) return State(tensors[(*next)++]);
  std::vector<State> parts;
  for (const State& part : state.parts()) parts.push_back(Replaced(part, tensors, next));
  return State(std::move(parts));
}

State Zeros(const Scope& s, const StateSize& size, const Output& batch, DType dtype) {
  if (size.is_tuple()) {
    std::vector<State> parts;
    for (const StateSize& part : size.parts) parts.push_back(Zeros(s, part, batch, dtype));
    return State(std::move(parts));
  }
  const Output dims = Op(s, "Pack", {InputList{batch, static_cast<int32_t>(size.size)}});
  return Op(s.WithOpName("zeros"), "Fill", {dims, Input(0).In(s, dtype)});
}

// The shape of a state as text: "[32,128]", "([32,128], [32,128])".
std::string ShapesOf(const State& state) {
  if (state.IsNone()) return "nothing";
  if (!state.is_tuple()) return state.tensor().shape().ToString();
  return absl::StrCat(
      "(", absl::StrJoin(state.parts(), ", ", [](std::string* out, const State& s) { *out += ShapesOf(s); }), ")");
}

bool Fits(const State& state, const StateSize& size) {
  if (state.is_tuple() != size.is_tuple() || state.parts().size() != size.parts.size()) return false;
  if (!size.is_tuple()) {
    return !state.tensor().empty() && state.tensor().shape().IsCompatibleWith(PartialShape({-1, size.size}));
  }
  for (size_t i = 0; i < size.parts.size(); ++i) {
    if (!Fits(state.parts()[i], size.parts[i])) return false;
  }
  return true;
}

}  // namespace

std::vector<Output> State::Tensors() const {
  std::vector<Output> all;
  if (!IsNone()) AppendTensors(*this, &all);
  return all;
}

State State::WithTensors(const std::vector<Output>& tensors) const {
  size_t next = 0;
  return IsNone() ? State() : Replaced(*this, tensors, &next);
}

std::string StateSize::ToString() const {
  if (!is_tuple()) return absl::StrCat(size);
  return absl::StrCat(
      "(", absl::StrJoin(parts, ", ", [](std::string* out, const StateSize& s) { *out += s.ToString(); }), ")");
}

bool CheckState(const Scope& scope, const std::string& what, const State& state, const StateSize& size) {
  if (!scope.ok()) return false;
  if (Fits(state, size)) return true;
  scope.UpdateStatus(InvalidArgument(what, " has shape ", ShapesOf(state), ", but a state of size ", size.ToString(),
                                     " for each example is needed"));
  return false;
}

State Cell::ZeroState(const Scope& scope, const Input& batch, DType dtype) const {
  const Scope s = scope.SubScope(absl::StrCat(name(), "_zero_state"));
  return Zeros(s, state_size(), batch.In(s, DType::kInt32), dtype);
}

Sequence Cell::Run(const Scope& s, const TimeMajor& sequence, const State& start) const {
  const Output& x = sequence.inputs;
  const Output steps = DimOf(s, x, 0), batch = DimOf(s, x, 1);
  const RowList inputs = RowList::Of(s, x);
  const PartialShape out_shape({x.shape().dim(1), output_size()});
  const Output out_dims = Op(s, "Pack", {InputList{batch, static_cast<int32_t>(output_size())}});
  const Output zero_output =
      sequence.length.empty() ? Output() : Op(s.WithOpName("zeros"), "Fill", {out_dims, Input(0).In(s, x.dtype())});
  const RowList empty = RowList::Reserve(s, x.dtype(), out_dims, out_shape, x);
  const Output length = sequence.length.empty() ? Output() : Op(s, "ExpandDims", {sequence.length, 1});

  // The loop's variables: the time, the list of outputs, the state.
  std::vector<Output> variables = {Input(0).In(s.WithOpName("time")), empty.list()};
  for (const Output& t : start.Tensors()) variables.push_back(t);
  const std::vector<Output> last = While(
      s, variables, [&](const Scope&, const std::vector<Output>& v) { return v[0] < steps; },
      [&](const Scope& body, const std::vector<Output>& v) {
        const Output time = v[0];
        const std::vector<Output> before(v.begin() + 2, v.end());
        const Step step = Next(body, inputs.At(body, time), start.WithTensors(before));
        std::vector<Output> after = step.state.Tensors();
        Output output = step.output;
        if (!length.empty() && body.ok()) {
          const Output within = Op(body, "Less", {time, length});
          output = Op(body, "SelectV2", {within, output, zero_output});
          for (size_t i = 0; i < after.size(); ++i) after[i] = Op(body, "SelectV2", {within, after[i], before[i]});
        }
        std::vector<Output> next = {time + 1, empty.With(body, v[1], time, output)};
        next.insert(next.end(), after.begin(), after.end());
        return next;
      },
      {.parallel_iterations = sequence.parallel_iterations});
  if (!s.ok()) return {};
  return {empty.Stack(s, last[1]), start.WithTensors(std::vector<Output>(last.begin() + 2, last.end()))};
}

}  // namespace millrace::rnn
