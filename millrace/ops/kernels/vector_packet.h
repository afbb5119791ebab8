// Functions of eight floats shared by several loops, so that all of them give bit-identical results.
#pragma once

#include "millrace/ops/kernels/vec.h"

namespace millrace::vector {

using ::millrace::MulAdd;  // in addition to the overload for a single float

// Odd functions that tend to 1, approximated as x * p(x^2) / q(x^2) up to where they are 1 in float precision, with
// minimal relative error. Polynomials are evaluated in pairs, because the dependency chain costs more than the extra
// products. NaN stays NaN: see Smaller.

// Relative error at most 2.2e-7, of which 1.9e-8 is due to the approximation. Both polynomials are scaled to minimise
// the effect of rounding their coefficients.
struct ErfOf {
  static Vec Of(Vec x) {
    const Vec t = Smaller(Broadcast(15.4056f), x * x), t2 = t * t;
    const auto pair = [&](float high, float low) { return MulAdd(Broadcast(high), t, Broadcast(low)); };
    Vec p = MulAdd(pair(1.51123356e-06f, 0.000210393031f), t2, pair(0.00278654136f, 0.0389768034f));
    p = MulAdd(p, t2, pair(0.140778184f, 0.833447695f));
    Vec q = MulAdd(pair(2.81029206e-05f, 0.000859663705f), t2, pair(0.0110670403f, 0.0843385309f));
    q = MulAdd(q, t2, pair(0.370968908f, 0.738623798f));
    return Larger(Broadcast(-1.0f), Smaller(Broadcast(1.0f), (x * p) / q));
  }
};

// Relative error at most 3e-7, of which 2.1e-8 is due to the approximation.
struct TanhOf {
  static Vec Of(Vec x) {
    const Vec t = Smaller(Broadcast(81.3604f), x * x), t2 = t * t;
    const auto pair = [&](float high, float low) { return MulAdd(Broadcast(high), t, Broadcast(low)); };
    Vec p = MulAdd(Broadcast(1.3334104916801844e-08f), t2, pair(2.059432385575353e-05f, 0.003494693992463502f));
    p = MulAdd(p, t2, pair(0.1338027354015915f, 1.0f));
    Vec q = MulAdd(Broadcast(7.768168717904618e-07f), t2, pair(0.00032841707506877814f, 0.025873582981351888f));
    q = MulAdd(q, t2, pair(0.4671358895237567f, 1.0f));
    return Larger(Broadcast(-1.0f), Smaller(Broadcast(1.0f), (x * p) / q));
  }
};

// y[i] = f(x[i]) in whole vectors; the remainder is padded and takes the same path.
template <typename F>
void MapVecs(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kVec <= n; i += kVec) Store(y + i, F::Of(Load(x + i)));
  if (i == n) return;
  float rest[kVec] = {};
  for (int64_t k = 0; i + k < n; ++k) rest[k] = x[i + k];
  Store(rest, F::Of(Load(rest)));
  for (int64_t k = 0; i + k < n; ++k) y[i + k] = rest[k];
}

}  // namespace millrace::vector
