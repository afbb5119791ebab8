// What layers have in common. Internal to the front end.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/layers.h"
#include "millrace/api/op_call.h"
#include "millrace/api/partitioned_variable.h"
#include "millrace/api/regularizers.h"

namespace millrace::api_internal {

// The last dimension of x, which must be known; otherwise -1, and the scope's error names the layer.
int64_t LastDim(const Scope& s, const Output& x, int min_rank);
// False, and an error of the scope that names the layer, unless the value is positive.
bool CheckPositive(const Scope& s, const char* what, int64_t value);
std::string PaddingName(layers::Padding padding);

// Adds the regularization of a weight that is not used again. Called before the weight is used: the order in which the
// parts of a gradient are added up is that of the uses, and must not depend on whether this use is the first.
void Regularize(const Scope& s, const PartitionedVar& weight, const Regularizer& regularizer);

// A weight and its value.
struct Weight {
  PartitionedVar variable;
  Output value;
};
struct WeightOptions {
  DType dtype = DType::kFloat;
  bool trainable = true;
  Regularizer regularizer = nullptr;
};
Weight MakeWeight(const Scope& s, absl::string_view name, const Shape& shape, const Initializer& init,
                  const WeightOptions& options);

// Bias and activation of a layer with `units` outputs. `Options` is that of a layer.
template <typename Options>
Output FinishLayer(const Scope& s, Output y, DType dtype, int64_t units, const Options& options) {
  if (options.use_bias) {
    const Weight bias = MakeWeight(s, "bias", Shape({units}), options.bias_initializer,
                                   {dtype, options.trainable, options.bias_regularizer});
    y = Op(s, "BiasAdd", {y, bias.value});
  }
  if (options.activation) y = options.activation(s, y);
  if (options.activity_regularizer) AddRegularizationLoss(options.activity_regularizer(s, y));
  return y;
}

}  // namespace millrace::api_internal
