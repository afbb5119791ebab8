#include "millrace/ops/nn/winograd.h"

#include "millrace/ops/kernels/onednn.h"
#include "millrace/ops/nn/winograd_tiles.h"
#include "millrace/ops/nn/winograd_tiling.h"

namespace millrace::conv::winograd {
namespace {

// Below this, the filter's transformation and the hand-offs cost too much.
constexpr double kLeastFlops = 4e6;
constexpr int64_t kLeastTilesInAll = 64;
constexpr int64_t kMostTiles = 96;
constexpr int64_t kLeastTiles = 24;
// The number of separate partial sums of the filter's gradient, which limits the number of threads.
constexpr int64_t kFilterPieces = 16;
// The maximum size of these sums in floats, if there are more than two.
constexpr int64_t kSumsFloats = 8 << 20;
// The number of tiles of a block, of which one takes `floats` floats in its transformed forms.
int64_t TilesOfBlock(int64_t floats) {
  return std::clamp(kBlockBytes / static_cast<int64_t>(sizeof(float)) / floats, kLeastTiles, kMostTiles);
}

template <typename Scheme>
constexpr int kElements = Tiles<Scheme>::kElements;
template <typename Scheme>
constexpr int kOutElements = Tiles<Scheme>::kOutElements;

// Transforms the input's tiles of runs [begin, end); the number of tiles.
template <typename Scheme>
int64_t TransformRuns(const Tiling& tiling, int64_t begin, int64_t end, const float* images, const Images& in,
                      int64_t pad_top, int64_t pad_left, const float* zeros, float* out, int64_t plane) {
  int64_t tiles = 0;
  tiling.ForRuns(begin, end, [&](int64_t image, int64_t row, int64_t first, int64_t count) {
    constexpr int W = Scheme::kWindow;
    Rows<W> rows{.row = {}, .step = {}, .width = in.width, .ahead = {}};
    for (int i = 0; i <= W; ++i) {
      const int64_t y = 2 * row - pad_top + i;
      const bool inside = y >= 0 && y < in.height;
      rows.row[i] = inside ? images + image * in.size() + y * in.width * in.channels : zeros;
      rows.step[i] = inside ? in.channels : 0;
    }
    for (int i = 0; i < 2; ++i) {
      rows.ahead[i] = images + image * in.size() + (2 * row - pad_top + W + 1 + i) * in.width * in.channels;
    }
    Tiles<Scheme>::TransformInput(rows, 2 * first - pad_left, count, in.channels, out + tiles * in.channels, plane);
    tiles += count;
  });
  return tiles;
}

// The four pixels of a tile of `images`; `outside` stands for those that are not there.
template <typename T>
std::array<T*, 4> Pixels(T* images, const Images& size, int64_t image, int64_t row, int64_t column, T* outside) {
  T* corner = images + image * size.size() + (2 * row * size.width + 2 * column) * size.channels;
  const bool right = 2 * column + 1 < size.width, below = 2 * row + 1 < size.height;
  const int64_t down = size.width * size.channels;
  return {corner, right ? corner + size.channels : outside, below ? corner + down : outside,
          right && below ? corner + down + size.channels : outside};
}

// planes[e][in][out] of the filter, which is [W, W, in_channels, out_channels]; `back` turns it round.
template <typename Scheme>
Status TransformFilters(KernelContext& ctx, const ConvGeometry& g, const float* filter, bool back, int64_t plane,
                        float* planes) {
  constexpr int W = Scheme::kWindow;
  const int64_t in = g.in_channels, out = g.out_channels;
  Tensor turned;
  if (back) {
    MR_ASSIGN_OR_RETURN(turned, ctx.AllocateTemp(DType::kFloat, Shape({W * W, out, in})));
    float* to = turned.data<float>();
    ctx.ParallelFor(W * W, std::max<int64_t>(1, 16384 / (in * out)), [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        for (int64_t i = 0; i < in; i += kVec) {
          for (int64_t o = 0; o < out; o += kVec) {
            Transpose8x8(filter + (e * in + i) * out + o, out, to + (e * out + o) * in + i, in);
          }
        }
      }
    });
    filter = to;
  }
  const int64_t rows = back ? out : in, columns = back ? in : out;
  ctx.ParallelFor(rows, std::max<int64_t>(1, 4096 / columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * columns; i < end * columns; i += kVec) {
      Tiles<Scheme>::TransformFilter(filter + i, rows * columns, back, planes + i, plane);
    }
  });
  return absl::OkStatus();
}

template <typename Scheme>
Status RunDirection(KernelContext& ctx, const ConvGeometry& g, const Direction& d, const float* images,
                    const float* filter, bool back, const ConvEpilogue& epilogue, float* result) {
  const int64_t from = d.in.channels, to = d.out.channels;
  const Tiling tiling(g.batch, d.out, 2, TilesOfBlock(kElements<Scheme> * from + kOutElements<Scheme> * to));
  const int64_t filter_plane = PlaneSize(from * to);
  MR_ASSIGN_OR_RETURN(Tensor filters, ctx.AllocateTemp(DType::kFloat, Shape({kElements<Scheme>, filter_plane})));
  MR_RETURN_IF_ERROR(TransformFilters<Scheme>(ctx, g, filter, back, filter_plane, filters.data<float>()));
  const float* transformed = filters.data<float>();

  const int64_t in_plane = PlaneSize(tiling.tiles_per_block * from), out_plane = PlaneSize(tiling.tiles_per_block * to);
  const int64_t scratch = kElements<Scheme> * in_plane + kOutElements<Scheme> * out_plane + from + to;
  const double block_flops =
      4.0 * static_cast<double>(g.window_pixels()) * static_cast<double>(tiling.tiles_per_block * from * to) * 2;
  const int64_t blocks_per_piece = std::max<int64_t>(1, static_cast<int64_t>(kPieceFlops / block_flops));
  const int64_t ahead = 2 * d.out.width * to;
  onednn::FirstError failure;
  ctx.ParallelFor(tiling.runs, tiling.runs_per_block * blocks_per_piece, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> memory = ctx.AllocateTemp(DType::kFloat, Shape({scratch}));
    if (!memory.ok()) return failure.Update(memory.status());
    float* tiles = memory->data<float>();
    float* products = tiles + kElements<Scheme> * in_plane;
    float* zeros = products + kOutElements<Scheme> * out_plane;
    float* outside = zeros + from;
    std::fill(zeros, zeros + from, 0.0f);
    for (int64_t b = begin; b < end; b += tiling.runs_per_block) {
      const int64_t last = std::min(end, b + tiling.runs_per_block);
      const int64_t count =
          TransformRuns<Scheme>(tiling, b, last, images, d.in, d.pad_top, d.pad_left, zeros, tiles, in_plane);
      for (int e = 0; e < kElements<Scheme>; ++e) {
        const Strided a{tiles + e * in_plane, from, 1};
        const float* right = transformed + e * filter_plane;
        float* product = products + Tiles<Scheme>::To(e) * out_plane;
        if (Tiles<Scheme>::IsFirst(e)) {
          MultiplyPlane<false>(a, count, right, to, from, product, to, to);
        } else {
          MultiplyPlane<true>(a, count, right, to, from, product, to, to);
        }
      }
      const float* product = products;
      tiling.ForRuns(b, last, [&](int64_t image, int64_t row, int64_t first, int64_t n) {
        for (int64_t t = first; t < first + n; ++t, product += to) {
          Tiles<Scheme>::TransformOutput(product, out_plane, to, Pixels(result, d.out, image, row, t, outside), ahead);
        }
        if (epilogue.bias == nullptr) return;
        for (int64_t y = 2 * row; y < std::min(2 * row + 2, d.out.height); ++y) {
          epilogue.Apply(result + image * d.out.size() + (y * d.out.width + 2 * first) * to,
                         std::min(2 * n, d.out.width - 2 * first), to);
        }
      });
    }
  });
  return failure.status();
}

// sums[e][in][out] over the tiles of runs [begin, end).
template <typename Scheme>
void SumFilterGradient(const Tiling& tiling, const Direction& d, int64_t begin, int64_t end, const float* x,
                       const float* dy, float* scratch, float* sums, int64_t sum_plane) {
  const int64_t in = d.in.channels, out = d.out.channels;
  const int64_t in_plane = PlaneSize(tiling.tiles_per_block * in), out_plane = PlaneSize(tiling.tiles_per_block * out);
  float* tiles = scratch;
  float* gradients = tiles + kElements<Scheme> * in_plane;
  float* zeros = gradients + kOutElements<Scheme> * out_plane;
  std::fill(zeros, zeros + std::max(in, out), 0.0f);
  const int64_t ahead = 2 * d.out.width * out;
  for (int64_t b = begin; b < end; b += tiling.runs_per_block) {
    const int64_t last = std::min(end, b + tiling.runs_per_block);
    const int64_t count =
        TransformRuns<Scheme>(tiling, b, last, x, d.in, d.pad_top, d.pad_left, zeros, tiles, in_plane);
    float* gradient = gradients;
    tiling.ForRuns(b, last, [&](int64_t image, int64_t row, int64_t first, int64_t n) {
      for (int64_t t = first; t < first + n; ++t, gradient += out) {
        Tiles<Scheme>::TransformGradient(Pixels<const float>(dy, d.out, image, row, t, zeros), out, gradient, out_plane,
                                         ahead);
      }
    });
    for (int e = 0; e < kElements<Scheme>; ++e) {
      const Strided a{tiles + e * in_plane, 1, in};
      const float* right = gradients + Tiles<Scheme>::To(e) * out_plane;
      float* sum = sums + e * sum_plane;
      if (b == begin) {
        MultiplyPlane<false>(a, in, right, out, count, sum, out, out);
      } else {
        MultiplyPlane<true>(a, in, right, out, count, sum, out, out);
      }
    }
  }
}

template <typename Scheme>
Status RunFilterGradient(KernelContext& ctx, const ConvGeometry& g, const Direction& d, const float* x, const float* dy,
                         float* df) {
  const int64_t in = d.in.channels, out = d.out.channels, size = in * out;
  const Tiling tiling(g.batch, d.out, 2, TilesOfBlock(kElements<Scheme> * in + kOutElements<Scheme> * out));
  const double flops = g.flops_per_image() * static_cast<double>(g.batch);
  const int64_t sum_plane = PlaneSize(size), sum_size = kElements<Scheme> * sum_plane;
  const int64_t most = std::clamp<int64_t>(kSumsFloats / sum_size, 2, kFilterPieces);
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(std::min(flops / kPieceFlops, 1e6)), 1, most);
  const int64_t blocks = (tiling.runs + tiling.runs_per_block - 1) / tiling.runs_per_block;
  const int64_t runs_per_piece = (blocks + wanted - 1) / wanted * tiling.runs_per_block;
  const int64_t pieces = (tiling.runs + runs_per_piece - 1) / runs_per_piece;
  const int64_t scratch = kElements<Scheme> * PlaneSize(tiling.tiles_per_block * in) +
                          kOutElements<Scheme> * PlaneSize(tiling.tiles_per_block * out) + std::max(in, out);
  MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DType::kFloat, Shape({pieces, sum_size})));
  float* sums = parts.data<float>();
  onednn::FirstError failure;
  ctx.ParallelFor(tiling.runs, runs_per_piece, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> memory = ctx.AllocateTemp(DType::kFloat, Shape({scratch}));
    if (!memory.ok()) return failure.Update(memory.status());
    SumFilterGradient<Scheme>(tiling, d, begin, end, x, dy, memory->data<float>(),
                              sums + begin / runs_per_piece * sum_size, sum_plane);
  });
  MR_RETURN_IF_ERROR(failure.status());
  ctx.ParallelFor(in, std::max<int64_t>(1, 1024 / out), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * out; i < end * out; i += kVec) {
      Vec total[kElements<Scheme>];
      for (int e = 0; e < kElements<Scheme>; ++e) {
        total[e] = Load(sums + e * sum_plane + i);
        for (int64_t p = 1; p < pieces; ++p) total[e] += Load(sums + p * sum_size + e * sum_plane + i);
      }
      Tiles<Scheme>::FilterGradient(total, df + i, size);
    }
  });
  return absl::OkStatus();
}

// `Back` is the scheme for the gradient of the filter.
template <typename Scheme, typename Back>
Status RunWindow(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
                 const ConvEpilogue& epilogue) {
  const WindowDim &h = g.dim[1], &w = g.dim[2];
  const Images input{h.in, w.in, g.in_channels}, output{h.out, w.out, g.out_channels};
  const Direction forward{input, output, h.pad_before, w.pad_before};
  constexpr int W = Scheme::kWindow;
  switch (kind) {
    case ConvKind::kForward:
      return RunDirection<Scheme>(ctx, g, forward, a, b, false, epilogue, c);
    case ConvKind::kBackwardInput:
      return RunDirection<Scheme>(ctx, g, {output, input, W - 1 - h.pad_before, W - 1 - w.pad_before}, b, a, true, {},
                                  c);
    case ConvKind::kBackwardFilter:
      return RunFilterGradient<Back>(ctx, g, forward, a, b, c);
  }
  return absl::OkStatus();
}

}  // namespace

bool Serves(const ConvGeometry& g) {
  const WindowDim &h = g.dim[1], &w = g.dim[2];
  return g.rank == 2 && !g.channels_first && g.groups == 1 && h.window == 5 && w.window == 5 && h.stride == 1 &&
         w.stride == 1 && h.dilation == 1 && w.dilation == 1 && g.in_channels % kVec == 0 &&
         g.out_channels % kVec == 0 && g.batch * ((h.out + 1) / 2) * ((w.out + 1) / 2) >= kLeastTilesInAll &&
         g.flops_per_image() * static_cast<double>(g.batch) >= kLeastFlops;
}

Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue) {
  return RunWindow<Window5, Window5Split>(ctx, kind, g, a, b, c, epilogue);
}

}  // namespace millrace::conv::winograd
