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
Initializer LecunUniform(SeedOption options = {});
Initializer LecunNormal(SeedOption options = {});

enum class Fan { kIn, kOut, kAverage };
enum class Distribution { kTruncatedNormal, kUntruncatedNormal, kUniform };
struct VarianceScalingOptions {
  double scale = 1;
  Fan fan = Fan::kIn;
  Distribution distribution = Distribution::kTruncatedNormal;
  std::optional<int64_t> seed = std::nullopt;
};
// Random numbers of variance scale / n, where n is the number of inputs, of outputs, or the mean of both. The scope
// fails with INVALID_ARGUMENT unless the scale is positive.
Initializer VarianceScaling(VarianceScalingOptions options = {});

struct UnitScalingOptions {
  double factor = 1;
  std::optional<int64_t> seed = std::nullopt;
};
// Uniform numbers that keep the scale of a layer's inputs: up to factor * sqrt(3 / number of inputs).
Initializer UniformUnitScaling(UnitScalingOptions options = {});

struct OrthogonalOptions {
  double gain = 1;
  std::optional<int64_t> seed = std::nullopt;
};
// A matrix with orthogonal rows or columns, whichever are fewer, times the gain. Of a shape with more dimensions, all
// but the last count as rows. The scope fails with INVALID_ARGUMENT for fewer than two.
Initializer Orthogonal(OrthogonalOptions options = {});
// The identity matrix times the gain, for shapes of two dimensions.
Initializer Identity(double gain = 1);

}  // namespace init
}  // namespace millrace
