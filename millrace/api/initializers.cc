#include "millrace/api/initializers.h"

#include <algorithm>
#include <cmath>

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/scope_state.h"

namespace millrace::init {
namespace {

Output ShapeConst(const Scope& scope, const Shape& shape) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  const bool small = std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d <= INT32_MAX; });
  if (!small) return Input(dims).In(scope.WithOpName("shape"));
  return Input(std::vector<int32_t>(dims.begin(), dims.end())).In(scope.WithOpName("shape"));
}

// Random numbers from `op` (mean 0 and standard deviation 1, or uniform in [0, 1)).
Output Random(const Scope& scope, const char* op, const Shape& shape, DType dtype, std::optional<int64_t> op_seed) {
  const Output dims = ShapeConst(scope, shape);
  const auto [seed, seed2] = scope.OpSeeds(op_seed);
  return Op(scope.WithOpName(op), op, {dims}, {{"dtype", dtype}, {"seed", seed}, {"seed2", seed2}});
}

Output Normal(const Scope& scope, const char* op, const Shape& shape, DType dtype, const NormalOptions& options) {
  return Random(scope, op, shape, dtype, options.seed) * options.stddev + options.mean;
}

Output Uniform(const Scope& scope, const Shape& shape, DType dtype, const UniformOptions& options) {
  return Random(scope, "RandomUniform", shape, dtype, options.seed) * (options.max - options.min) + options.min;
}

struct Fans {
  double in = 1;
  double out = 1;
};
Fans FansOf(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {};
  if (rank == 1) return {static_cast<double>(shape.dim(0)), static_cast<double>(shape.dim(0))};
  const double window = static_cast<double>(shape.Product(0, rank - 2));
  return {window * shape.dim(rank - 2), window * shape.dim(rank - 1)};
}

// The standard deviation of a standard normal distribution truncated at 2.
constexpr double kTruncatedStddev = 0.87962566103423978;

Output ScaledUniform(const Scope& scope, const Shape& shape, DType dtype, double variance, const SeedOption& options) {
  const double limit = std::sqrt(3 * variance);
  return Uniform(scope, shape, dtype, {.min = -limit, .max = limit, .seed = options.seed});
}
Output ScaledNormal(const Scope& scope, const Shape& shape, DType dtype, double variance, const SeedOption& options) {
  const double stddev = std::sqrt(variance) / kTruncatedStddev;
  return Normal(scope, "TruncatedNormal", shape, dtype, {.stddev = stddev, .seed = options.seed});
}

// A part of a partitioned variable is scaled by the shape of the whole.
const Shape& WholeShape(const Scope& scope, const Shape& shape) {
  const VariableSlice* const part = api_internal::StateOf(scope).initializing;
  return part == nullptr ? shape : part->full_shape;
}

double GlorotVariance(const Scope& scope, const Shape& shape) {
  const Fans fans = FansOf(WholeShape(scope, shape));
  return 1 / std::max(1.0, (fans.in + fans.out) / 2);
}
double HeVariance(const Scope& scope, const Shape& shape) {
  return 2 / std::max(1.0, FansOf(WholeShape(scope, shape)).in);
}

}  // namespace

Initializer Constant(Literal value) {
  return [value](const Scope& scope, const Shape& shape, DType dtype) {
    const Output constant = Input(value).In(scope, dtype);
    if (constant.empty() || value.shape() == shape) return constant;
    const VariableSlice* const part = api_internal::StateOf(scope).initializing;
    if (part != nullptr && value.shape() == part->full_shape) {
      std::vector<int64_t> sizes(shape.dims().begin(), shape.dims().end());
      return Op(scope, "Slice", {constant, part->offset, sizes});
    }
    if (!value.shape().IsScalar()) {
      scope.UpdateStatus(InvalidArgument("in scope '", scope.prefix(), "': a constant of shape ",
                                         value.shape().ToString(), " cannot initialise a variable of shape ",
                                         shape.ToString()));
      return Output(scope, Endpoint{});
    }
    return Op(scope, "Fill", {ShapeConst(scope, shape), constant});
  };
}
Initializer Zeros() {
  return [](const Scope& scope, const Shape& shape, DType dtype) {
    // Strings start empty, bools false.
    if (dtype == DType::kString) return Constant("")(scope, shape, dtype);
    if (dtype == DType::kBool) return Constant(false)(scope, shape, dtype);
    return Constant(0)(scope, shape, dtype);
  };
}
Initializer Ones() { return Constant(1); }

Initializer RandomNormal(NormalOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return Normal(scope, "RandomStandardNormal", shape, dtype, options);
  };
}
Initializer TruncatedNormal(NormalOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return Normal(scope, "TruncatedNormal", shape, dtype, options);
  };
}
Initializer RandomUniform(UniformOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) { return Uniform(scope, shape, dtype, options); };
}
Initializer GlorotUniform(SeedOption options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return ScaledUniform(scope, shape, dtype, GlorotVariance(scope, shape), options);
  };
}
Initializer GlorotNormal(SeedOption options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return ScaledNormal(scope, shape, dtype, GlorotVariance(scope, shape), options);
  };
}
Initializer HeUniform(SeedOption options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return ScaledUniform(scope, shape, dtype, HeVariance(scope, shape), options);
  };
}
Initializer HeNormal(SeedOption options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return ScaledNormal(scope, shape, dtype, HeVariance(scope, shape), options);
  };
}

}  // namespace millrace::init
