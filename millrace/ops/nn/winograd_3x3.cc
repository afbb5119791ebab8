#include "millrace/ops/nn/winograd_3x3.h"

#include <array>

#include "millrace/ops/kernels/onednn.h"
#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/kernels/wide_vec.h"
#include "millrace/ops/nn/winograd_tiling.h"

namespace millrace::conv::winograd_3x3 {
namespace {

using winograd::Direction;
using winograd::Images;
using winograd::kBlockBytes;
using winograd::kPieceFlops;
using winograd::PlaneSize;
using winograd::Tiling;

// Below this, the filter's transformation and the hand-offs cost too much.
constexpr double kLeastFlops = 4e6;
constexpr int64_t kLeastTilesInAll = 16;
constexpr int64_t kMostTiles = 96;
// A partial sum of the filter's gradient is of at least as many tiles, and there are at most as many sums: their
// addition costs memory and time, and their number limits that of threads.
constexpr int64_t kLeastTilesOfSum = 128;
constexpr int64_t kMostSums = 16;

// The rows of pixels that a row of tiles reads, six at most. Rows outside the image point to zeros and have step 0.
struct TileRows {
  std::array<const float*, 6> row;
  std::array<int64_t, 6> step;  // from pixel to pixel
  int64_t width;                // pixels in a row; those outside are 0
  int64_t channels;
  std::array<const float*, 4> ahead;  // the rows that the next row of tiles needs too (prefetch)
};

// Adjacent tiles of an output: their number, and how much of them is inside the image.
struct TilePixels {
  int64_t tiles;
  int64_t width, height;
  int64_t channels;
  int64_t row;  // floats from row to row
};

#define MILLRACE_LOOPS "millrace/ops/nn/winograd_3x3_tiles.h"
#include "millrace/ops/kernels/both_widths.h"

// A block of tiles and its place in memory.
template <typename Tiles>
struct Block {
  Block(const ConvGeometry& g, const Direction& d)
      : tiling(g.batch, d.out, Tiles::kOutStep, Wanted(d)),
        room((tiling.tiles_per_block + Tiles::kGroup - 1) / Tiles::kGroup * Tiles::kGroup),
        in_plane(PlaneSize(room * d.in.channels)),
        out_plane(PlaneSize(room * d.out.channels)) {}

  static int64_t Wanted(const Direction& d) {
    const int64_t floats = Tiles::kInElements * d.in.channels + Tiles::kOutElements * d.out.channels;
    const int64_t most = kBlockBytes / static_cast<int64_t>(sizeof(float)) / floats;
    return std::clamp(most / Tiles::kGroup * Tiles::kGroup, Tiles::kGroup, kMostTiles);
  }

  // Scratch memory: the tiles of input and output, and a pixel of zeros.
  int64_t floats(const Direction& d) const {
    return Tiles::kInElements * in_plane + Tiles::kOutElements * out_plane + d.in.channels;
  }

  const Tiling tiling;
  const int64_t room;
  const int64_t in_plane, out_plane;
};

// By the definition of a convolution.
template <typename Tiles>
double BlockFlops(const Block<Tiles>& block, const Direction& d) {
  const double outputs = std::min(Tiles::kOutStep * Tiles::kOutStep, Tiles::kInStep * Tiles::kInStep);
  return 18.0 * outputs * static_cast<double>(block.tiling.tiles_per_block * d.in.channels * d.out.channels);
}

// Transforms the input's tiles of runs [begin, end); the number of tiles.
template <typename Tiles>
int64_t TransformRuns(const Block<Tiles>& block, const Direction& d, int64_t begin, int64_t end, const float* images,
                      const float* zeros, float* out) {
  int64_t tiles = 0;
  block.tiling.ForRuns(begin, end, [&](int64_t image, int64_t row, int64_t first, int64_t count) {
    TileRows rows{.row = {}, .step = {}, .width = d.in.width, .channels = d.in.channels, .ahead = {}};
    const float* pixels = images + image * d.in.size();
    const int64_t top = Tiles::kInStep * row - d.pad_top, length = d.in.width * d.in.channels;
    for (int i = 0; i < Tiles::kPixels; ++i) {
      const bool inside = top + i >= 0 && top + i < d.in.height;
      rows.row[i] = inside ? pixels + (top + i) * length : zeros;
      rows.step[i] = inside ? d.in.channels : 0;
    }
    for (int i = 0; i < 4; ++i) rows.ahead[i] = pixels + (top + Tiles::kPixels + i) * length;
    Tiles::TransformInput(rows, Tiles::kInStep * first - d.pad_left, count, out + tiles * Tiles::kChannels,
                          block.in_plane, block.room);
    tiles += count;
  });
  return tiles;
}

// Calls fn(where the first pixel is, pixels, where the first tile is in a plane) for runs [begin, end) of the output.
template <typename Tiles, typename Fn>
void ForPixels(const Block<Tiles>& block, const Images& out, int64_t begin, int64_t end, Fn fn) {
  int64_t tiles = 0;
  block.tiling.ForRuns(begin, end, [&](int64_t image, int64_t row, int64_t first, int64_t count) {
    const TilePixels pixels{.tiles = count,
                            .width = out.width - Tiles::kOutStep * first,
                            .height = out.height - Tiles::kOutStep * row,
                            .channels = out.channels,
                            .row = out.width * out.channels};
    fn(image * out.size() + Tiles::kOutStep * (row * pixels.row + first * out.channels), pixels,
       tiles * Tiles::kChannels);
    tiles += count;
  });
}

// The pixels of adjacent tiles that are inside the image.
template <typename Tiles>
int64_t Height(const TilePixels& p) {
  return std::min<int64_t>(Tiles::kOutStep, p.height);
}
template <typename Tiles>
int64_t Width(const TilePixels& p) {
  return std::min(Tiles::kOutStep * p.tiles, p.width);
}

// planes[e][in][out] of the filter, which is [3, 3, in_channels, out_channels]; `back` turns it round.
template <typename Tiles>
Status TransformFilters(KernelContext& ctx, const ConvGeometry& g, const float* filter, bool back, int64_t plane,
                        float* planes) {
  const int64_t in = g.in_channels, out = g.out_channels;
  Tensor turned;
  if (back) {
    MR_ASSIGN_OR_RETURN(turned, ctx.AllocateTemp(DType::kFloat, Shape({9, out, in})));
    float* to = turned.data<float>();
    ctx.ParallelFor(9, std::max<int64_t>(1, 16384 / (in * out)), [&](int64_t begin, int64_t end) {
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
    for (int64_t i = begin * columns; i < end * columns; i += Tiles::kChannels) {
      Tiles::TransformFilter(filter + i, rows * columns, back, planes + i, plane);
    }
  });
  return absl::OkStatus();
}

// The moments of an output, piece by piece: sums of differences from a pixel of the piece, and of their squares, which
// are as small as the deviations.
class PieceMoments {
 public:
  static StatusOr<PieceMoments> Make(KernelContext& ctx, const Images& out, int64_t pieces) {
    PieceMoments made;
    made.channels_ = out.channels;
    made.pieces_ = pieces;
    MR_ASSIGN_OR_RETURN(made.memory_, ctx.AllocateTemp(DType::kFloat, Shape({pieces, 4, out.channels})));
    return made;
  }

  // Adds pixels, which are not the piece's first if there were any before.
  template <typename Tiles>
  void Add(int64_t piece, bool first, const float* pixels, const TilePixels& p) {
    float *shift = At(piece, 0), *sums = At(piece, 1), *squares = At(piece, 2), *count = At(piece, 3);
    if (first) {
      std::copy(pixels, pixels + channels_, shift);
      std::fill(sums, shift + 4 * channels_, 0.0f);
    }
    const int64_t height = Height<Tiles>(p), width = Width<Tiles>(p);
    Tiles::AddMoments(pixels, height, width, p.row, channels_, shift, sums, squares);
    *count += static_cast<float>(height * width);
  }

  void Finish(float* mean, float* variance) {
    for (int64_t c = 0; c < channels_; ++c) {
      double n = 0, centre = 0, squares = 0;
      for (int64_t p = 0; p < pieces_; ++p) {
        const double count = *At(p, 3), sum = At(p, 1)[c], own = At(p, 0)[c] + sum / count, apart = own - centre;
        squares += At(p, 2)[c] - sum * sum / count + apart * apart * n * count / (n + count);
        n += count;
        centre += apart * count / n;
      }
      mean[c] = static_cast<float>(centre);
      variance[c] = static_cast<float>(std::max(0.0, squares / n));
    }
  }

 private:
  float* At(int64_t piece, int64_t what) { return memory_.data<float>() + (4 * piece + what) * channels_; }

  int64_t channels_ = 0, pieces_ = 0;
  Tensor memory_;
};

template <typename Tiles>
Status RunDirection(KernelContext& ctx, const ConvGeometry& g, const Direction& d, const float* images,
                    const float* filter, bool back, const ConvEpilogue& epilogue, float* result) {
  const Block<Tiles> block(g, d);
  const Tiling& tiling = block.tiling;
  const int64_t from = d.in.channels, to = d.out.channels, filter_plane = PlaneSize(from * to);
  MR_ASSIGN_OR_RETURN(Tensor filters, ctx.AllocateTemp(DType::kFloat, Shape({Tiles::kElements, filter_plane})));
  MR_RETURN_IF_ERROR(TransformFilters<Tiles>(ctx, g, filter, back, filter_plane, filters.data<float>()));
  const float* transformed = filters.data<float>();
  const double block_flops = BlockFlops(block, d);
  const int64_t blocks_per_piece = std::max<int64_t>(1, static_cast<int64_t>(kPieceFlops / block_flops));
  const int64_t runs_per_piece = tiling.runs_per_block * blocks_per_piece;
  PieceMoments moments;
  if (epilogue.mean != nullptr) {
    MR_ASSIGN_OR_RETURN(moments, PieceMoments::Make(ctx, d.out, (tiling.runs + runs_per_piece - 1) / runs_per_piece));
  }
  onednn::FirstError failure;
  ctx.ParallelFor(tiling.runs, runs_per_piece, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> memory = ctx.AllocateTemp(DType::kFloat, Shape({block.floats(d)}));
    if (!memory.ok()) return failure.Update(memory.status());
    float* tiles = memory->data<float>();
    float* products = tiles + Tiles::kInElements * block.in_plane;
    float* zeros = products + Tiles::kOutElements * block.out_plane;
    std::fill(zeros, zeros + from, 0.0f);
    for (int64_t b = begin; b < end; b += tiling.runs_per_block) {
      const int64_t last = std::min(end, b + tiling.runs_per_block);
      const int64_t count = TransformRuns(block, d, b, last, images, zeros, tiles);
      // Tiles beyond the last are multiplied too, whatever they are, and not used.
      const int64_t padded = (count + Tiles::kGroup - 1) / Tiles::kGroup * Tiles::kGroup;
      for (int e = 0; e < Tiles::kElements; ++e) {
        Tiles::Multiply(tiles + Tiles::From(e) * block.in_plane, padded, block.room, from,
                        transformed + e * filter_plane, to, !Tiles::IsFirst(e),
                        products + Tiles::To(e) * block.out_plane);
      }
      ForPixels(block, d.out, b, last, [&](int64_t at, const TilePixels& pixels, int64_t tile) {
        const float* addend = epilogue.addend == nullptr ? nullptr : epilogue.addend + at;
        Tiles::TransformOutput(products + tile, block.out_plane, block.room, pixels, addend, result + at);
        if (epilogue.mean != nullptr) {
          moments.Add<Tiles>(begin / runs_per_piece, b == begin && tile == 0, result + at, pixels);
        }
        if (epilogue.bias == nullptr) return;
        for (int64_t y = 0; y < Height<Tiles>(pixels); ++y) {
          epilogue.Apply(result + at + y * pixels.row, Width<Tiles>(pixels), to);
        }
      });
    }
  });
  if (epilogue.mean != nullptr && failure.ok()) moments.Finish(epilogue.mean, epilogue.variance);
  return failure.status();
}

// sums[e][in][out] over the tiles of runs [begin, end).
template <typename Tiles>
void SumFilterGradient(const Block<Tiles>& block, const Direction& d, int64_t begin, int64_t end, const float* x,
                       const float* dy, float* scratch, float* sums, int64_t sum_plane) {
  const int64_t in = d.in.channels, out = d.out.channels;
  float* tiles = scratch;
  float* gradients = tiles + Tiles::kInElements * block.in_plane;
  float* zeros = gradients + Tiles::kOutElements * block.out_plane;
  std::fill(zeros, zeros + in, 0.0f);
  for (int64_t b = begin; b < end; b += block.tiling.runs_per_block) {
    const int64_t last = std::min(end, b + block.tiling.runs_per_block);
    const int64_t count = TransformRuns(block, d, b, last, x, zeros, tiles);
    ForPixels(block, d.out, b, last, [&](int64_t at, const TilePixels& pixels, int64_t tile) {
      Tiles::TransformGradient(dy + at, pixels, gradients + tile, block.out_plane, block.room);
    });
    for (int e = 0; e < Tiles::kElements; ++e) {
      Tiles::MultiplyTransposed(tiles + e * block.in_plane, gradients + Tiles::To(e) * block.out_plane, count,
                                block.room, in, out, b != begin, sums + e * sum_plane);
    }
  }
}

template <typename Tiles>
Status RunFilterGradient(KernelContext& ctx, const ConvGeometry& g, const Direction& d, const float* x, const float* dy,
                         float* df) {
  const Block<Tiles> block(g, d);
  const int64_t in = d.in.channels, out = d.out.channels, size = in * out;
  const int64_t sum_plane = PlaneSize(size), sum_size = Tiles::kElements * sum_plane;
  const int64_t per_block = block.tiling.tiles_per_block;
  const int64_t blocks = (block.tiling.runs + block.tiling.runs_per_block - 1) / block.tiling.runs_per_block;
  const double block_flops = BlockFlops(block, d);
  const int64_t least = std::max({(kLeastTilesOfSum + per_block - 1) / per_block, (blocks + kMostSums - 1) / kMostSums,
                                  static_cast<int64_t>(kPieceFlops / block_flops)});
  const int64_t runs_per_sum = std::max<int64_t>(1, least) * block.tiling.runs_per_block;
  const int64_t pieces = (block.tiling.runs + runs_per_sum - 1) / runs_per_sum;
  MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DType::kFloat, Shape({pieces, sum_size})));
  float* sums = parts.data<float>();
  onednn::FirstError failure;
  ctx.ParallelFor(block.tiling.runs, runs_per_sum, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> memory = ctx.AllocateTemp(DType::kFloat, Shape({block.floats(d)}));
    if (!memory.ok()) return failure.Update(memory.status());
    SumFilterGradient(block, d, begin, end, x, dy, memory->data<float>(), sums + begin / runs_per_sum * sum_size,
                      sum_plane);
  });
  MR_RETURN_IF_ERROR(failure.status());
  ctx.ParallelFor(in, std::max<int64_t>(1, 1024 / out), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * out; i < end * out; i += Tiles::kChannels) {
      Tiles::FilterGradient(sums + i, pieces, sum_size, sum_plane, df + i, size);
    }
  });
  return absl::OkStatus();
}

template <typename ForwardTiles, typename BackwardTiles>
Status RunAs(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, int64_t back_pad_top, int64_t back_pad_left,
             const float* a, const float* b, float* c, const ConvEpilogue& epilogue) {
  const WindowDim &h = g.dim[1], &w = g.dim[2];
  const Images input{h.in, w.in, g.in_channels}, output{h.out, w.out, g.out_channels};
  const Direction forward{input, output, h.pad_before, w.pad_before};
  switch (kind) {
    case ConvKind::kForward:
      return RunDirection<ForwardTiles>(ctx, g, forward, a, b, false, epilogue, c);
    case ConvKind::kBackwardInput:
      return RunDirection<BackwardTiles>(ctx, g, {output, input, back_pad_top, back_pad_left}, b, a, true, epilogue, c);
    case ConvKind::kBackwardFilter:
      return RunFilterGradient<ForwardTiles>(ctx, g, forward, a, b, c);
  }
  return absl::OkStatus();
}

#define MILLRACE_RUN_AS(width)                                                                                      \
  (g.dim[1].stride == 1                                                                                             \
       ? RunAs<width::Tiles, width::Tiles>(ctx, kind, g, 2 - g.dim[1].pad_before, 2 - g.dim[2].pad_before, a, b, c, \
                                           epilogue)                                                                \
       : RunAs<width::StridedForwardTiles, width::StridedBackwardTiles>(ctx, kind, g, 1, 1, a, b, c, epilogue))

}  // namespace

bool Serves(const ConvGeometry& g) {
  const WindowDim &h = g.dim[1], &w = g.dim[2];
  if (g.rank != 2 || g.channels_first || g.groups != 1 || h.window != 3 || w.window != 3 || h.stride != w.stride ||
      h.stride > 2 || h.dilation != 1 || w.dilation != 1 || h.out <= 2 || w.out <= 2 || g.in_channels % kVec != 0 ||
      g.out_channels % kVec != 0) {
    return false;
  }
  if (h.stride == 2 && (h.pad_before != 0 || w.pad_before != 0)) return false;
  return g.batch * ((h.out + 3) / 4) * ((w.out + 3) / 4) >= kLeastTilesInAll &&
         g.flops_per_image() * static_cast<double>(g.batch) >= kLeastFlops;
}

Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue) {
#if defined(MILLRACE_WIDE_VECTORS)
  if (HasWideVectors() && g.in_channels % wide::kVec == 0 && g.out_channels % wide::kVec == 0) {
    return MILLRACE_RUN_AS(wide);
  }
#endif
  return MILLRACE_RUN_AS(narrow);
}

#undef MILLRACE_RUN_AS

}  // namespace millrace::conv::winograd_3x3
