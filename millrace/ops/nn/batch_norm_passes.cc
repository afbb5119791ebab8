#include "millrace/ops/nn/batch_norm_passes.h"

#include <cstring>

namespace millrace::batch_norm {
namespace {

// With channels last, several short rows are processed together so that vectors are full for any number of channels;
// parameters are replicated to the width of such a tile. With channels first, the pixels of a channel are split into
// runs of this length.
constexpr int64_t kTile = 128;
// The minimum number of elements per piece, which is read twice while in the cache.
constexpr int64_t kPiece = 16384;

// The division of images into pieces, for one layout.
struct Cut {
  Cut(const ChannelBlocks& v, bool last) : v(v), last(last) {
    rows = std::max<int64_t>(1, kTile / std::max<int64_t>(v.channels, 1));
    const int64_t row = std::max<int64_t>(1, v.channels * v.inner);
    per_piece = std::max<int64_t>(1, kPiece / row);
    if (last) per_piece = (std::max<int64_t>(per_piece, 32) + rows - 1) / rows * rows;
    pieces = (v.outer + per_piece - 1) / per_piece;
  }
  // The size in floats of a replicated parameter or an accumulator.
  int64_t width() const { return last ? rows * v.channels : v.channels; }

  const ChannelBlocks v;
  const bool last;
  int64_t rows = 1;       // of a tile, with channels last
  int64_t per_piece = 1;  // outer steps of a piece
  int64_t pieces = 1;
};

// Per-channel parameters, replicated if a tile has several rows.
template <size_t N>
class Parameters {
 public:
  Status Set(KernelContext& ctx, const Cut& cut, const std::array<const float*, N>& from) {
    if (!cut.last || cut.rows == 1) {
      p_ = from;
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(memory_, ctx.AllocateTemp(DType::kFloat, Shape({static_cast<int64_t>(N) * cut.width()})));
    float* to = memory_.data<float>();
    for (size_t k = 0; k < N; ++k) {
      p_[k] = to;
      for (int64_t r = 0; r < cut.rows; ++r) to = std::copy(from[k], from[k] + cut.v.channels, to);
    }
    return absl::OkStatus();
  }
  const float* operator[](size_t k) const { return p_[k]; }

 private:
  std::array<const float*, N> p_ = {};
  Tensor memory_;
};

// Element i of a parameter: its own with channels last, the channel's otherwise.
template <bool kLast>
inline float At(const float* p, int64_t i) {
  return kLast ? p[i] : *p;
}

// Calls fn(at, n, c) for runs of elements of outer steps [begin, end): parameters of the run begin at c.
template <bool kLast, typename Fn>
inline void ForRuns(const Cut& cut, int64_t begin, int64_t end, Fn fn) {
  const ChannelBlocks& v = cut.v;
  if constexpr (kLast) {
    for (int64_t o = begin; o < end; o += cut.rows) fn(o * v.channels, std::min(cut.rows, end - o) * v.channels, 0);
  } else {
    for (int64_t row = begin * v.channels; row < end * v.channels; ++row) fn(row * v.inner, v.inner, row % v.channels);
  }
}

// sums[k][c] = sum over outer steps [begin, end) of what fn(at, n, c, accumulators) adds to accumulators.
template <bool kLast, size_t N, typename Fn>
inline void SumRuns(const Cut& cut, int64_t begin, int64_t end, const std::array<float*, N>& sums, Fn fn) {
  const int64_t channels = cut.v.channels;
  if (kLast && cut.rows == 1) {
    for (float* s : sums) std::fill(s, s + channels, 0.0f);
    ForRuns<kLast>(cut, begin, end, [&](int64_t at, int64_t n, int64_t c) { fn(at, n, c, sums); });
    return;
  }
  alignas(64) float memory[N][2 * kTile];
  std::array<float*, N> acc;
  for (size_t k = 0; k < N; ++k) {
    acc[k] = memory[k];
    std::fill(sums[k], sums[k] + channels, 0.0f);
  }
  if constexpr (kLast) {
    for (float* a : acc) std::fill(a, a + cut.width(), 0.0f);
    ForRuns<kLast>(cut, begin, end, [&](int64_t at, int64_t n, int64_t c) { fn(at, n, c, acc); });
    for (size_t k = 0; k < N; ++k) {
      for (int64_t r = 0; r < cut.rows; ++r) {
        for (int64_t c = 0; c < channels; ++c) sums[k][c] += acc[k][r * channels + c];
      }
    }
  } else {
    ForRuns<kLast>(cut, begin, end, [&](int64_t at, int64_t n, int64_t c) {
      for (float* a : acc) std::fill(a, a + kTile, 0.0f);
      for (int64_t i = 0; i < n; i += kTile) fn(at + i, std::min(kTile, n - i), c, acc);
      for (size_t k = 0; k < N; ++k) {
        float total = 0;
        for (int64_t i = 0; i < std::min(n, kTile); ++i) total += acc[k][i];
        sums[k][c] += total;
      }
    });
  }
}

// Calls fn over the outer steps of each piece.
template <typename Fn>
void ForPieces(KernelContext& ctx, const Cut& cut, Fn fn) {
  ctx.ParallelFor(cut.v.outer, cut.per_piece, fn);
}

template <bool kLast>
Status MomentsOf(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* mean, float* variance) {
  const Cut cut(v, kLast);
  const int64_t channels = v.channels;
  // Per piece: the means, and the sums of squared deviations.
  MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DType::kFloat, Shape({cut.pieces, 2, channels})));
  float* all = parts.data<float>();
  ForPieces(ctx, cut, [&](int64_t begin, int64_t end) {
    float* centre = all + begin / cut.per_piece * 2 * channels;
    float* squares = centre + channels;
    SumRuns<kLast, 1>(cut, begin, end, {centre}, [x](int64_t at, int64_t n, int64_t, const std::array<float*, 1>& acc) {
      const float* __restrict from = x + at;
      float* __restrict sum = acc[0];
      for (int64_t i = 0; i < n; ++i) sum[i] += from[i];
    });
    const float count = static_cast<float>((end - begin) * v.inner);
    for (int64_t c = 0; c < channels; ++c) centre[c] /= count;
    alignas(64) float repeated[2 * kTile];
    const float* around = centre;
    if (kLast && cut.rows > 1) {
      for (int64_t r = 0; r < cut.rows; ++r) std::copy(centre, centre + channels, repeated + r * channels);
      around = repeated;
    }
    SumRuns<kLast, 1>(cut, begin, end, {squares},
                      [x, around](int64_t at, int64_t n, int64_t c, const std::array<float*, 1>& acc) {
                        const float* __restrict from = x + at;
                        const float* __restrict m = around + c;
                        float* __restrict sum = acc[0];
                        for (int64_t i = 0; i < n; ++i) {
                          const float d = from[i] - At<kLast>(m, i);
                          sum[i] += d * d;
                        }
                      });
  });
  const auto count_of = [&](int64_t p) {
    return static_cast<double>((std::min(v.outer, (p + 1) * cut.per_piece) - p * cut.per_piece) * v.inner);
  };
  const double n = static_cast<double>(v.per_channel());
  const int64_t grain = std::max<int64_t>(1, kPiece / std::max<int64_t>(cut.pieces, 1));
  ctx.ParallelFor(channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double total = 0;
      for (int64_t p = 0; p < cut.pieces; ++p) total += count_of(p) * all[p * 2 * channels + c];
      const double centre = total / n;
      double squares = 0;
      for (int64_t p = 0; p < cut.pieces; ++p) {
        const double d = all[p * 2 * channels + c] - centre;
        squares += all[(p * 2 + 1) * channels + c] + count_of(p) * d * d;
      }
      mean[c] = static_cast<float>(centre);
      variance[c] = static_cast<float>(squares / n);
    }
  });
  return absl::OkStatus();
}

template <bool kLast, bool kSide, bool kRelu>
Status NormaliseAs(KernelContext& ctx, const ChannelBlocks& v, const float* x, const Affine& affine, const float* side,
                   float* y) {
  const Cut cut(v, kLast);
  Parameters<3> p;
  MR_RETURN_IF_ERROR(p.Set(ctx, cut, {affine.mean, affine.factor, affine.offset}));
  ForPieces(ctx, cut, [&](int64_t begin, int64_t end) {
    ForRuns<kLast>(cut, begin, end, [&](int64_t at, int64_t n, int64_t c) {
      const float* __restrict from = x + at;
      const float* __restrict add = kSide ? side + at : nullptr;
      const float* __restrict mean = p[0] + c, * __restrict factor = p[1] + c, * __restrict offset = p[2] + c;
      float* __restrict to = y + at;
      for (int64_t i = 0; i < n; ++i) {
        float z = (from[i] - At<kLast>(mean, i)) * At<kLast>(factor, i) + At<kLast>(offset, i);
        if (kSide) z += add[i];
        to[i] = kRelu && z < 0.0f ? 0.0f : z;
      }
    });
  });
  return absl::OkStatus();
}

enum class Mask { kNone, kAgain, kFromOutput };

// dz at one element.
template <bool kLast, Mask kMask>
inline float Dz(float dy, float d, float y, const float* factor, const float* offset, int64_t i) {
  if constexpr (kMask == Mask::kAgain) return d * At<kLast>(factor, i) + At<kLast>(offset, i) > 0.0f ? dy : 0.0f;
  if constexpr (kMask == Mask::kFromOutput) return y > 0.0f ? dy : 0.0f;
  return dy;
}

template <bool kLast, Mask kMask, bool kStore>
Status SumsAs(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, float* doffset, float* dscale) {
  const Cut cut(v, kLast);
  const int64_t channels = v.channels;
  Parameters<3> p;
  MR_RETURN_IF_ERROR(p.Set(ctx, cut, {b.affine.mean, b.affine.factor, b.affine.offset}));
  MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DType::kFloat, Shape({cut.pieces, 2, channels})));
  float* all = parts.data<float>();
  ForPieces(ctx, cut, [&](int64_t begin, int64_t end) {
    float* mine = all + begin / cut.per_piece * 2 * channels;
    SumRuns<kLast, 2>(
        cut, begin, end, {mine, mine + channels},
        [&](int64_t at, int64_t n, int64_t c, const std::array<float*, 2>& acc) {
          // dz may alias dy: each element is read before it is written.
          const float* dy = b.dy + at;
          const float* __restrict x = b.x + at;
          const float* __restrict y = kMask == Mask::kFromOutput ? b.y + at : nullptr;
          const float* __restrict mean = p[0] + c, * __restrict factor = p[1] + c, * __restrict offset = p[2] + c;
          float* dz = kStore ? b.dz + at : nullptr;
          float* __restrict sum = acc[0], * __restrict product = acc[1];
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) {
            const float d = x[i] - At<kLast>(mean, i);
            const float g = Dz<kLast, kMask>(dy[i], d, kMask == Mask::kFromOutput ? y[i] : 0.0f, factor, offset, i);
            if (kStore) dz[i] = g;
            sum[i] += g;
            product[i] += g * d;
          }
        });
  });
  const int64_t grain = std::max<int64_t>(1, kPiece / std::max<int64_t>(cut.pieces, 1));
  ctx.ParallelFor(channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0, product = 0;
      for (int64_t k = 0; k < cut.pieces; ++k) {
        sum += all[k * 2 * channels + c];
        product += all[(k * 2 + 1) * channels + c];
      }
      doffset[c] = static_cast<float>(sum);
      dscale[c] = static_cast<float>(product);
    }
  });
  return absl::OkStatus();
}

template <bool kLast, Mask kMask>
Status InputAs(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, const Slopes& s, float* dx) {
  const Cut cut(v, kLast);
  Parameters<6> p;
  MR_RETURN_IF_ERROR(p.Set(ctx, cut, {b.affine.mean, b.affine.factor, b.affine.offset, s.slope, s.shift, s.tilt}));
  ForPieces(ctx, cut, [&](int64_t begin, int64_t end) {
    ForRuns<kLast>(cut, begin, end, [&](int64_t at, int64_t n, int64_t c) {
      // dx may alias dy or x: each element is read before it is written.
      const float* dy = b.dy + at;
      const float* x = b.x + at;
      const float* y = kMask == Mask::kFromOutput ? b.y + at : nullptr;
      const float* __restrict mean = p[0] + c, * __restrict factor = p[1] + c, * __restrict offset = p[2] + c, * __restrict slope = p[3] + c, * __restrict shift = p[4] + c, * __restrict tilt = p[5] + c;
      float* to = dx + at;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) {
        const float d = x[i] - At<kLast>(mean, i);
        const float g = Dz<kLast, kMask>(dy[i], d, kMask == Mask::kFromOutput ? y[i] : 0.0f, factor, offset, i);
        to[i] = At<kLast>(slope, i) * (g - At<kLast>(shift, i) - d * At<kLast>(tilt, i));
      }
    });
  });
  return absl::OkStatus();
}

// Calls fn with compile-time flags in place of run-time ones.
template <typename Fn>
Status WithFlag(bool flag, Fn fn) {
  return flag ? fn(std::true_type()) : fn(std::false_type());
}

}  // namespace

Status Moments(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* mean, float* variance) {
  return v.inner == 1 ? MomentsOf<true>(ctx, v, x, mean, variance) : MomentsOf<false>(ctx, v, x, mean, variance);
}

Status Normalise(KernelContext& ctx, const ChannelBlocks& v, const float* x, const Affine& affine, const Fused& fused,
                 float* y) {
  return WithFlag(v.inner == 1, [&](auto last) {
    return WithFlag(fused.side != nullptr, [&](auto side) {
      return WithFlag(fused.relu, [&](auto relu) {
        return NormaliseAs<decltype(last)::value, decltype(side)::value, decltype(relu)::value>(ctx, v, x, affine,
                                                                                                fused.side, y);
      });
    });
  });
}

Status GradientSums(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, float* doffset, float* dscale) {
  return WithFlag(v.inner == 1, [&](auto last) {
    return WithFlag(b.dz != nullptr, [&](auto store) {
      constexpr bool kLast = decltype(last)::value, kStore = decltype(store)::value;
      if (!b.relu) return SumsAs<kLast, Mask::kNone, kStore>(ctx, v, b, doffset, dscale);
      if (b.y == nullptr) return SumsAs<kLast, Mask::kAgain, kStore>(ctx, v, b, doffset, dscale);
      return SumsAs<kLast, Mask::kFromOutput, kStore>(ctx, v, b, doffset, dscale);
    });
  });
}

Status GradientOfInput(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, const Slopes& s, float* dx) {
  return WithFlag(v.inner == 1, [&](auto last) {
    constexpr bool kLast = decltype(last)::value;
    if (!b.relu) return InputAs<kLast, Mask::kNone>(ctx, v, b, s, dx);
    if (b.y == nullptr) return InputAs<kLast, Mask::kAgain>(ctx, v, b, s, dx);
    return InputAs<kLast, Mask::kFromOutput>(ctx, v, b, s, dx);
  });
}

}  // namespace millrace::batch_norm
