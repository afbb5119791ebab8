// Layers of a Transformer.
//
//   Output h = layers::LayerNormalization(scope, x);
//   x = x + layers::MultiHeadAttention(scope, h, h, {.heads = 4, .causal = true});
#pragma once

#include "millrace/api/layers.h"

namespace millrace::layers {

struct LayerNormalizationOptions {
  double epsilon = 1e-3;
  bool center = true;  // adds a learnt offset, "beta"
  bool scale = true;   // multiplies by a learnt factor, "gamma"
  Initializer beta_initializer = init::Zeros();
  Initializer gamma_initializer = init::Ones();
  bool trainable = true;
};
// Normalises each row of the last dimension, whose size must be known, to mean 0 and variance 1.
Output LayerNormalization(const Scope& scope, const Input& x, const LayerNormalizationOptions& options = {});

// x times the probability that a standard normal variable is at most x; by default exactly, otherwise by tanh.
Output Gelu(const Scope& scope, const Input& x, bool approximate = false);

struct AttentionOptions {
  int64_t heads = 1;
  // The size of a head's queries and keys, and of its values. 0: the queries' last dimension divided by the number of
  // heads, which it then must be a multiple of; key_size.
  int64_t key_size = 0;
  int64_t value_size = 0;
  // The last dimension of the result; 0: that of the queries.
  int64_t output_size = 0;
  // Position i attends to positions up to i only.
  bool causal = false;
  // Of which keys a query takes no notice: bool, broadcast to [batch, heads, queries, keys]; true: it attends to it.
  Input mask = Input();
  // The share of attention weights that is dropped in training.
  double dropout = 0;
  Input training = false;
  bool use_bias = true;
  Initializer kernel_initializer = init::GlorotUniform();
  bool trainable = true;
};
// queries [batch, n, depth] attend to memory [batch, m, depth'], from which keys and values are made; the same tensor
// for self-attention. Variables are those of the layers "query", "key", "value" and "output" in the scope that
// WithOpName names, "multi_head_attention" by default.
Output MultiHeadAttention(const Scope& scope, const Input& queries, const Input& memory,
                          const AttentionOptions& options = {});

// softmax(q k^T / sqrt(depth)) v for q [..., n, depth], k [..., m, depth], v [..., m, size]. `mask` is bool, broadcast
// to [..., n, m]; false excludes a pair.
Output ScaledDotProductAttention(const Scope& scope, const Input& q, const Input& k, const Input& v,
                                 const Input& mask = Input());

// [length, length]: true where column j <= row i.
Output CausalMask(const Scope& scope, const Input& length);

// The fixed encoding [length, depth] of "Attention is all you need": sines in the even columns, cosines in the odd
// ones, with wavelengths from 2 pi to 10000 * 2 pi.
Output SinusoidalPositions(const Scope& scope, int64_t length, int64_t depth);

struct LearntPositionsOptions {
  Initializer initializer = init::RandomNormal({.stddev = 0.02});
  bool trainable = true;
};
// A learnt encoding for up to `max_length` positions: the first rows, as many as x [batch, time, depth] has time steps,
// of the variable "embeddings". More time steps than that fail, when the graph is built or in the step.
Output LearntPositions(const Scope& scope, const Input& x, int64_t max_length,
                       const LearntPositionsOptions& options = {});

}  // namespace millrace::layers
