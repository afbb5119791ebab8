// Moving averages of variables, which often predict better than the variables themselves.
//
//   ExponentialMovingAverage averages(0.999);
//   Operation step = averages.Apply(scope.WithControlDependencies({train}));      // run instead of `train`
//   ...
//   Saver saver(scope, {.names = averages.VariablesToRestore(scope)});            // in a graph that predicts
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/api/variable.h"

namespace millrace {

struct ExponentialMovingAverageOptions {
  // The number of updates so far, usually the global step: then the decay is at most (1 + n) / (10 + n), so that the
  // averages follow faster in the beginning.
  Input num_updates = Input();
  // Corrects averages of tensors, which start at 0, for that. Those of variables start at their initial values.
  bool zero_debias = false;
  std::string name = "ExponentialMovingAverage";
};

// Keeps an average of each variable that it was applied to: average = decay * average + (1 - decay) * value. It is a
// variable beside the other, "dense/kernel/ExponentialMovingAverage", as in TensorFlow. Use one object per graph.
class ExponentialMovingAverage {
 public:
  // `decay` is a number or a tensor, 0 to 1; usually close to 1.
  explicit ExponentialMovingAverage(Input decay, ExponentialMovingAverageOptions options = {})
      : decay_(std::move(decay)), options_(std::move(options)) {}

  // The op that updates the averages of these variables; by default of all that are trainable. Give the scope a control
  // dependency on what changes the variables. The scope fails with INVALID_ARGUMENT for a variable that is not of
  // floating point or was given before, and if there are none.
  Operation Apply(const Scope& scope, std::vector<Var> variables = {});
  // The same for tensors, such as losses. Their averages start at 0.
  Operation ApplyTensors(const Scope& scope, const std::vector<Output>& tensors);

  // The average of a variable or tensor; empty if there is none.
  Var Average(const Output& of) const;
  // Its name, also in a graph that has no averages.
  std::string AverageName(const Output& of) const;
  // What a saver restores, by the names in the checkpoint: those variables of which there are averages from these
  // averages, all others from themselves. By default averages are taken for all variables that are trainable. Of a
  // variable in several parts the parts must be restored by a saver of the graph with the averages.
  std::map<std::string, Var> VariablesToRestore(const Scope& scope, const std::vector<Var>& averaged = {}) const;

  const std::string& name() const { return options_.name; }

 private:
  Output Decay(const Scope& s, DType dtype) const;
  Operation Update(const Scope& s, const Var& average, const Output& value, bool zero_debias) const;

  const Input decay_;
  const ExponentialMovingAverageOptions options_;
  // By the node of a variable's handle, or of a tensor with its number.
  std::map<std::pair<const Node*, int>, Var> averages_;
};

}  // namespace millrace
