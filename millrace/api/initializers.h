// Initializers of variables.
#pragma once

#include <functional>
#include <optional>

#include "millrace/api/input.h"

namespace millrace {

// Builds the initial value of a variable of the given shape and type.
using Initializer = std::function<Output(const Scope& scope, const Shape& shape, DType dtype)>;

// init::GlorotUniform(), init::TruncatedNormal({.stddev = 0.1}), ...
//
// A random initializer without a seed uses the graph's (Scope::SetRandomSeed).
namespace init {

struct NormalOptions {
  double mean = 0;
  double stddev = 1;
  std::optional<int64_t> seed = std::nullopt;
};
struct UniformOptions {
  double min = -0.05;
  double max = 0.05;
  std::optional<int64_t> seed = std::nullopt;
};
struct SeedOption {
  std::optional<int64_t> seed = std::nullopt;
};

Initializer Zeros();
Initializer Ones();
// A number for every element, or a constant of exactly the variable's shape.
Initializer Constant(Literal value);
Initializer RandomNormal(NormalOptions options = {});
Initializer RandomUniform(UniformOptions options = {});
// A normal distribution truncated at two standard deviations from the mean.
Initializer TruncatedNormal(NormalOptions options = {});

// Scaled by the number of inputs and outputs of a layer: Glorot preserves the variance of values and gradients through
// linear layers, He that of values through ReLU layers. The last two dimensions of the shape are inputs and outputs,
// those before them a convolution's window.
Initializer GlorotUniform(SeedOption options = {});
Initializer GlorotNormal(SeedOption options = {});
Initializer HeUniform(SeedOption options = {});
Initializer HeNormal(SeedOption options = {});

}  // namespace init
}  // namespace millrace
