#include "millrace/ops/nn/rgb_convolution.h"

#include <array>

#include "millrace/ops/kernels/onednn.h"
#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/kernels/wide_vec.h"

namespace millrace::conv::rgb {
namespace {

// The work that is worth another thread, and the greatest number of partial sums of the filter's gradient.
constexpr double kRgbPieceFlops = 8e6;
constexpr int64_t kMostRgbSums = 16;
constexpr int64_t kColours = 3;
constexpr int64_t kFilterRows = 27;

// The rows of the padded image under the window of an output's first pixel.
struct RgbWindow {
  std::array<const float*, 3> row;
  int64_t step;  // floats from one output pixel to the next
};

#define MILLRACE_LOOPS "millrace/ops/nn/rgb_rows.h"
#include "millrace/ops/kernels/both_widths.h"

// Rows of the padded image, copied one by one.
class PaddedRows {
 public:
  static StatusOr<PaddedRows> Make(KernelContext& ctx, const ConvGeometry& g, const float* images) {
    PaddedRows made(g, images);
    MR_ASSIGN_OR_RETURN(made.memory_, ctx.AllocateTemp(DType::kFloat, Shape({3, made.length_})));
    std::fill(made.memory_.data<float>(), made.memory_.data<float>() + 3 * made.length_, 0.0f);
    return made;
  }

  // The window of row y of the output of an image.
  RgbWindow At(int64_t image, int64_t y) {
    const WindowDim &h = g_->dim[1], &w = g_->dim[2];
    RgbWindow window{.row = {}, .step = kColours * w.stride};
    for (int r = 0; r < 3; ++r) {
      float* to = memory_.data<float>() + r * length_;
      window.row[r] = to;
      const int64_t source = y * h.stride - h.pad_before + r;
      to += kColours * w.pad_before;
      if (source < 0 || source >= h.in) {
        std::fill(to, to + kColours * w.in, 0.0f);
      } else {
        const float* from = images_ + (image * h.in + source) * w.in * kColours;
        std::copy(from, from + kColours * w.in, to);
      }
    }
    return window;
  }

 private:
  // Nothing reads beyond the window of the last pixel, but windows may end before the image does.
  PaddedRows(const ConvGeometry& g, const float* images)
      : g_(&g),
        images_(images),
        length_(kColours * std::max((g.dim[2].out - 1) * g.dim[2].stride + 3, g.dim[2].pad_before + g.dim[2].in)) {}

  const ConvGeometry* g_;
  const float* images_;
  int64_t length_;
  Tensor memory_;
};

// Calls fn(window, first pixel of the row of the output) for rows [begin, end) of the outputs of all images.
template <typename Fn>
Status ForRows(KernelContext& ctx, const ConvGeometry& g, const float* images, int64_t begin, int64_t end, Fn fn) {
  MR_ASSIGN_OR_RETURN(PaddedRows rows, PaddedRows::Make(ctx, g, images));
  const int64_t height = g.dim[1].out;
  for (int64_t row = begin; row < end; ++row) fn(rows.At(row / height, row % height), row * g.dim[2].out);
  return absl::OkStatus();
}

int64_t RowsPerPiece(const ConvGeometry& g) {
  const double row_flops = g.flops_per_image() / static_cast<double>(g.dim[1].out);
  return std::max<int64_t>(1, static_cast<int64_t>(kRgbPieceFlops / row_flops));
}

template <typename Rows>
Status RunForward(KernelContext& ctx, const ConvGeometry& g, const float* x, const float* filter, float* y,
                  const ConvEpilogue& epilogue) {
  onednn::FirstError failure;
  const int64_t width = g.dim[2].out;
  ctx.ParallelFor(g.batch * g.dim[1].out, RowsPerPiece(g), [&](int64_t begin, int64_t end) {
    failure.Update(ForRows(ctx, g, x, begin, end, [&](const RgbWindow& window, int64_t pixel) {
      float* row = y + pixel * g.out_channels;
      Rows::Forward(window, width, filter, g.out_channels, row);
      epilogue.Apply(row, width, g.out_channels);
    }));
  });
  return failure.status();
}

template <typename Rows>
Status RunToFilter(KernelContext& ctx, const ConvGeometry& g, const float* x, const float* dy, float* df) {
  const int64_t rows = g.batch * g.dim[1].out, size = kFilterRows * g.out_channels;
  const int64_t per_piece = std::max(RowsPerPiece(g), (rows + kMostRgbSums - 1) / kMostRgbSums);
  const int64_t pieces = (rows + per_piece - 1) / per_piece;
  MR_ASSIGN_OR_RETURN(Tensor parts, ctx.AllocateTemp(DType::kFloat, Shape({pieces, size})));
  float* sums = parts.data<float>();
  onednn::FirstError failure;
  ctx.ParallelFor(rows, per_piece, [&](int64_t begin, int64_t end) {
    float* sum = sums + begin / per_piece * size;
    std::fill(sum, sum + size, 0.0f);
    failure.Update(ForRows(ctx, g, x, begin, end, [&](const RgbWindow& window, int64_t pixel) {
      Rows::AddFilterGradient(window, g.dim[2].out, dy + pixel * g.out_channels, g.out_channels, sum);
    }));
  });
  MR_RETURN_IF_ERROR(failure.status());
  for (int64_t i = 0; i < size; ++i) {
    float total = sums[i];
    for (int64_t p = 1; p < pieces; ++p) total += sums[p * size + i];
    df[i] = total;
  }
  return absl::OkStatus();
}

template <typename Rows>
Status RunWith(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
               const ConvEpilogue& epilogue) {
  if (kind == ConvKind::kForward) return RunForward<Rows>(ctx, g, a, b, c, epilogue);
  return RunToFilter<Rows>(ctx, g, a, b, c);
}

}  // namespace

bool Serves(ConvKind kind, const ConvGeometry& g) {
  const WindowDim &h = g.dim[1], &w = g.dim[2];
  return kind != ConvKind::kBackwardInput && g.rank == 2 && !g.channels_first && g.groups == 1 &&
         g.in_channels == kColours && h.window == 3 && w.window == 3 && h.dilation == 1 && w.dilation == 1 &&
         g.out_channels % kVec == 0;
}

Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue) {
#if defined(MILLRACE_WIDE_VECTORS)
  if (HasWideVectors() && g.out_channels % wide::kVec == 0) {
    return RunWith<wide::RgbRows>(ctx, kind, g, a, b, c, epilogue);
  }
#endif
  return RunWith<narrow::RgbRows>(ctx, kind, g, a, b, c, epilogue);
}

}  // namespace millrace::conv::rgb
