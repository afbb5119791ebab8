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
Initializer VarianceScaling(VarianceScalingOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    if (!(options.scale > 0)) {
      scope.UpdateStatus(InvalidArgument("in scope '", scope.prefix(), "': the scale of VarianceScaling is ",
                                         options.scale, ", and must be positive"));
      return Output(scope, Endpoint{});
    }
    const Fans fans = FansOf(WholeShape(scope, shape));
    const double count = options.fan == Fan::kIn    ? fans.in
                         : options.fan == Fan::kOut ? fans.out
                                                    : (fans.in + fans.out) / 2;
    const double variance = options.scale / std::max(1.0, count);
    switch (options.distribution) {
      case Distribution::kTruncatedNormal:
        return ScaledNormal(scope, shape, dtype, variance, {.seed = options.seed});
      case Distribution::kUniform:
        return ScaledUniform(scope, shape, dtype, variance, {.seed = options.seed});
      case Distribution::kUntruncatedNormal:
        break;
    }
    return Normal(scope, "RandomStandardNormal", shape, dtype, {.stddev = std::sqrt(variance), .seed = options.seed});
  };
}
Initializer LecunUniform(SeedOption options) {
  return VarianceScaling({.distribution = Distribution::kUniform, .seed = options.seed});
}
Initializer LecunNormal(SeedOption options) { return VarianceScaling({.seed = options.seed}); }

Initializer UniformUnitScaling(UnitScalingOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    const Shape& whole = WholeShape(scope, shape);
    const double inputs = whole.rank() == 0 ? 1 : static_cast<double>(whole.Product(0, whole.rank() - 1));
    const double limit = std::sqrt(3 / std::max(1.0, inputs)) * options.factor;
    return Uniform(scope, shape, dtype, {.min = -limit, .max = limit, .seed = options.seed});
  };
}

Initializer Orthogonal(OrthogonalOptions options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    if (shape.rank() < 2) {
      scope.UpdateStatus(InvalidArgument("in scope '", scope.prefix(),
                                         "': Orthogonal needs at least two dimensions, not ", shape.ToString()));
      return Output(scope, Endpoint{});
    }
    const int64_t rows = shape.Product(0, shape.rank() - 1), columns = shape.dim(shape.rank() - 1);
    const bool wide = rows < columns;
    const Shape tall = wide ? Shape({columns, rows}) : Shape({rows, columns});
    const Operation qr =
        AddOp(scope.WithOpName("Qr"), "Qr", {Random(scope, "RandomStandardNormal", tall, dtype, options.seed)});
    // With a positive diagonal of the other factor the result is unique, and uniform over all orthogonal matrices.
    Output q = Op(scope, "Mul", {qr.output(0), Op(scope, "Sign", {Op(scope, "MatrixDiagPart", {qr.output(1)})})});
    if (wide) q = Op(scope, "Transpose", {q, std::vector<int32_t>{1, 0}});
    return Op(scope, "Mul", {Op(scope, "Reshape", {q, ShapeConst(scope, shape)}), options.gain});
  };
}

Initializer Identity(double gain) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    const Shape& whole = WholeShape(scope, shape);
    if (whole.rank() != 2) {
      scope.UpdateStatus(
          InvalidArgument("in scope '", scope.prefix(), "': Identity needs two dimensions, not ", whole.ToString()));
      return Output(scope, Endpoint{});
    }
    const Output zeros = Op(scope, "Fill", {ShapeConst(scope, whole), Input(0).In(scope, dtype)});
    const std::vector<int32_t> size = {static_cast<int32_t>(std::min(whole.dim(0), whole.dim(1)))};
    const Output diagonal = Op(scope, "Fill", {size, Input(gain).In(scope, dtype)});
    const Output all = Op(scope, "MatrixSetDiag", {zeros, diagonal});
    const VariableSlice* const part = api_internal::StateOf(scope).initializing;
    if (part == nullptr) return all;
    return Op(scope, "Slice", {all, part->offset, std::vector<int64_t>(shape.dims().begin(), shape.dims().end())});
  };
}

Initializer HeNormal(SeedOption options) {
  return [=](const Scope& scope, const Shape& shape, DType dtype) {
    return ScaledNormal(scope, shape, dtype, HeVariance(scope, shape), options);
  };
}

}  // namespace millrace::init
