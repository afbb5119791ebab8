#include "millrace/api/transformer.h"

#include <cmath>

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/partitioned_variable.h"
#include "millrace/api/rnn_sequence.h"
#include "millrace/api/variable_creation.h"

namespace millrace::layers {
namespace {

// A score that softmax turns into 0.
constexpr double kExcluded = -1e9;

Output NoOutput(const Scope& s) { return Output(s, Endpoint{}); }

// [batch, time, heads * size] as [batch, heads, time, size].
Output SplitHeads(const Scope& s, const Output& x, int64_t heads, int64_t size) {
  const Output dims = Op(
      s, "Pack", {InputList{DimOf(s, x, 0), DimOf(s, x, 1), static_cast<int32_t>(heads), static_cast<int32_t>(size)}});
  return Op(s, "Transpose", {Op(s, "Reshape", {x, dims}), std::vector<int32_t>{0, 2, 1, 3}});
}

// The inverse, without heads: [batch, time, heads * size].
Output JoinHeads(const Scope& s, const Output& x, int64_t width) {
  const Output swapped = Op(s, "Transpose", {x, std::vector<int32_t>{0, 2, 1, 3}});
  const Output dims =
      Op(s, "Pack", {InputList{DimOf(s, swapped, 0), DimOf(s, swapped, 1), static_cast<int32_t>(width)}});
  return Op(s, "Reshape", {swapped, dims});
}

// softmax(q k^T / sqrt(depth)), with `mask` and dropout of the weights.
Output AttentionWeights(const Scope& s, const Output& q, const Output& k, const Input& mask) {
  if (!s.ok()) return NoOutput(s);
  const PartialShape shape = q.shape();
  if (!shape.known_rank() || shape.rank() < 2 || shape.dim(shape.rank() - 1) <= 0) {
    s.UpdateStatus(InvalidArgument("attention ", s.prefix(), ": the queries ", q.name(), " of shape ", shape.ToString(),
                                   " need at least 2 dimensions and a known last one"));
    return NoOutput(s);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(shape.dim(shape.rank() - 1)));
  // Scaling the queries touches fewer numbers than scaling the scores.
  Output scores = Op(s, "BatchMatMulV2", {Op(s, "Mul", {q, scale}), k}, {{"adj_y", true}});
  if (!mask.is_nothing()) {
    const Output allowed = mask.In(s, DType::kBool);
    if (s.ok() && allowed.dtype() != DType::kBool) {
      s.UpdateStatus(InvalidArgument("attention ", s.prefix(), ": the mask ", allowed.name(), " is ",
                                     DTypeName(allowed.dtype()), ", and must be bool"));
      return NoOutput(s);
    }
    scores = Op(s, "SelectV2", {allowed, scores, Input(kExcluded).In(s, scores.dtype())});
  }
  return Op(s, "Softmax", {scores});
}

// False, with the scope's error, unless x has three dimensions of which the last is known.
bool CheckSequence(const Scope& s, const char* what, const Output& x) {
  if (!s.ok()) return false;
  const PartialShape shape = x.shape();
  if (shape.known_rank() && shape.rank() == 3 && shape.dim(2) > 0) return true;
  s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": ", what, " ", x.name(), " of shape ", shape.ToString(),
                                 " must have three dimensions (batch, time, depth) of which the last is known"));
  return false;
}

// The error function of x / sqrt(2).
Output Erf(const Scope& s, const Output& x) { return Op(s, "Erf", {Op(s, "Mul", {x, M_SQRT1_2})}); }

}  // namespace

Output LayerNormalization(const Scope& scope, const Input& x, const LayerNormalizationOptions& options) {
  const Scope s = scope.ForComposite("layer_normalization");
  const Output in = x.In(s);
  if (!s.ok()) return NoOutput(s);
  const PartialShape shape = in.shape();
  if (!shape.known_rank() || shape.rank() < 1 || shape.dim(shape.rank() - 1) <= 0) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the input ", in.name(), " of shape ", shape.ToString(),
                                   " needs a known last dimension"));
    return NoOutput(s);
  }
  if (!(options.epsilon > 0)) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": epsilon is ", options.epsilon, ", and must be positive"));
    return NoOutput(s);
  }
  const auto weight = [&](const char* name, const Initializer& init) {
    const PartitionedVar variable(s, name, Shape({shape.dim(shape.rank() - 1)}), init,
                                  {.dtype = in.dtype(), .trainable = options.trainable});
    return api_internal::WholeOf(s, variable);
  };
  const std::vector<int32_t> last = {-1};
  const Output mean = Op(s, "Mean", {in, last}, {{"keep_dims", true}});
  const Output centered = Op(s, "Sub", {in, mean});
  const Output variance = Op(s, "Mean", {Op(s, "Square", {centered}), last}, {{"keep_dims", true}});
  Output y = Op(s, "Mul", {centered, Op(s, "Rsqrt", {variance + options.epsilon})});
  if (options.scale) y = Op(s, "Mul", {y, weight("gamma", options.gamma_initializer)});
  if (options.center) y = Op(s, "AddV2", {y, weight("beta", options.beta_initializer)});
  return y;
}

Output Gelu(const Scope& scope, const Input& x, bool approximate) {
  const Scope s = scope.ForComposite("gelu");
  const Output in = x.In(s);
  if (!s.ok()) return NoOutput(s);
  if (!approximate) return Op(s, "Mul", {Op(s, "Mul", {in, 0.5}), Op(s, "AddV2", {Erf(s, in), 1.0})});
  // x (1 + tanh(u)) / 2 = x sigmoid(2 u) for u = sqrt(2 / pi) (x + 0.044715 x^3), which has fewer ops and a shorter
  // gradient.
  const double factor = 2 * std::sqrt(2 / M_PI);
  const Output cubic = Op(s, "AddV2", {Op(s, "Mul", {Op(s, "Square", {in}), 0.044715 * factor}), factor});
  return Op(s, "Mul", {in, Op(s, "Sigmoid", {Op(s, "Mul", {in, cubic})})});
}

Output CausalMask(const Scope& scope, const Input& length) {
  const Scope s = scope.ForComposite("causal_mask");
  const Output positions = Op(s, "Range", {0, length.In(s, DType::kInt32), 1});
  return Op(s, "LessEqual", {Op(s, "ExpandDims", {positions, 0}), Op(s, "ExpandDims", {positions, 1})});
}

Output ScaledDotProductAttention(const Scope& scope, const Input& q, const Input& k, const Input& v,
                                 const Input& mask) {
  const Scope s = scope.ForComposite("attention");
  const Output queries = q.In(s), keys = k.In(s), values = v.In(s);
  return Op(s, "BatchMatMulV2", {AttentionWeights(s, queries, keys, mask), values});
}

Output MultiHeadAttention(const Scope& scope, const Input& queries, const Input& memory,
                          const AttentionOptions& options) {
  const Scope s = scope.ForComposite("multi_head_attention");
  const Output from = queries.In(s), to = memory.In(s);
  if (!CheckSequence(s, "the queries", from) || !CheckSequence(s, "the memory", to)) return NoOutput(s);
  const int64_t heads = options.heads, depth = from.shape().dim(2);
  if (heads <= 0 || options.key_size < 0 || options.value_size < 0 || options.output_size < 0) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": heads ", heads, " must be positive, and key_size ",
                                   options.key_size, ", value_size ", options.value_size, " and output_size ",
                                   options.output_size, " not negative"));
    return NoOutput(s);
  }
  if (options.key_size == 0 && depth % heads != 0) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the queries' depth ", depth, " is not a multiple of ",
                                   heads, " heads"));
    return NoOutput(s);
  }
  const int64_t key_size = options.key_size > 0 ? options.key_size : depth / heads;
  const int64_t value_size = options.value_size > 0 ? options.value_size : key_size;
  const int64_t output_size = options.output_size > 0 ? options.output_size : depth;
  const DenseOptions dense{
      .use_bias = options.use_bias, .kernel_initializer = options.kernel_initializer, .trainable = options.trainable};
  const auto project = [&](const char* name, const Output& x, int64_t size) {
    return SplitHeads(s, Dense(s.WithOpName(name), x, heads * size, dense), heads, size);
  };
  const Output q = project("query", from, key_size), k = project("key", to, key_size),
               v = project("value", to, value_size);
  if (!s.ok()) return NoOutput(s);
  Input mask = options.mask;
  if (options.causal) {
    const Output n = DimOf(s, from, 1), m = DimOf(s, to, 1);
    const Output rows = Op(s, "ExpandDims", {Op(s, "Range", {0, n, 1}), 1});
    const Output earlier = Op(s, "LessEqual", {Op(s, "ExpandDims", {Op(s, "Range", {0, m, 1}), 0}), rows});
    mask = mask.is_nothing() ? earlier : Op(s, "LogicalAnd", {earlier, mask.In(s, DType::kBool)});
  }
  Output weights = AttentionWeights(s, q, k, mask);
  if (options.dropout != 0) weights = Dropout(s, weights, options.dropout, options.training);
  const Output mixed = JoinHeads(s, Op(s, "BatchMatMulV2", {weights, v}), heads * value_size);
  return Dense(s.WithOpName("output"), mixed, output_size, dense);
}

Output SinusoidalPositions(const Scope& scope, int64_t length, int64_t depth) {
  const Scope s = scope.ForComposite("positions");
  if (!s.ok()) return NoOutput(s);
  if (length < 0 || depth <= 0) {
    s.UpdateStatus(InvalidArgument("positions ", s.prefix(), ": ", length, " positions of depth ", depth));
    return NoOutput(s);
  }
  Tensor table(DType::kFloat, Shape({length, depth}));
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t i = 0; i < depth; ++i) {
      const double frequency = std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(depth));
      const double angle = static_cast<double>(t) * frequency;
      table.data<float>()[t * depth + i] = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return Input(table).In(s.WithOpName("table"));
}

Output LearntPositions(const Scope& scope, const Input& x, int64_t max_length, const LearntPositionsOptions& options) {
  const Scope s = scope.ForComposite("positions");
  const Output in = x.In(s);
  if (!CheckSequence(s, "the input", in)) return NoOutput(s);
  const int64_t time = in.shape().dim(1), depth = in.shape().dim(2);
  if (time > max_length || max_length <= 0) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the input ", in.name(), " of shape ", in.shape().ToString(),
                                   " has more time steps than there are positions, ", max_length));
    return NoOutput(s);
  }
  const PartitionedVar table(s, "embeddings", Shape({max_length, depth}), options.initializer,
                             {.dtype = in.dtype(), .trainable = options.trainable});
  const Output all = api_internal::WholeOf(s, table);
  if (time == max_length) return all;
  const Output size = Op(s, "Pack", {InputList{DimOf(s, in, 1), static_cast<int32_t>(depth)}});
  return Op(s, "Slice", {all, std::vector<int32_t>{0, 0}, size});
}

}  // namespace millrace::layers
