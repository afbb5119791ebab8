// ExtractImagePatches and ExtractVolumePatches: the windows of a convolution laid out as channels.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// One spatial dimension of the windows.
struct Window {
  int64_t size, stride, rate;
  int64_t out = 0;
  int64_t before = 0;  // padding

  // Fits the window to a dimension of `in`.
  void Fit(int64_t in, bool same) {
    const int64_t reach = (size - 1) * rate + 1;
    if (same) {
      out = (in + stride - 1) / stride;
      before = std::max<int64_t>(0, (out - 1) * stride + reach - in) / 2;
    } else {
      out = in < reach ? 0 : (in - reach) / stride + 1;
    }
  }
};
using Windows = absl::InlinedVector<Window, 3>;

StatusOr<Windows> WindowsOf(const Node& node) {
  MR_ASSIGN_OR_RETURN(const auto sizes, node.Attr<std::vector<int64_t>>("ksizes"));
  MR_ASSIGN_OR_RETURN(const auto strides, node.Attr<std::vector<int64_t>>("strides"));
  const std::vector<int64_t> rates = node.AttrOr<std::vector<int64_t>>("rates", std::vector<int64_t>(sizes.size(), 1));
  const size_t rank = node.is_type("ExtractImagePatches") ? 4 : 5;
  if (sizes.size() != rank || strides.size() != rank || rates.size() != rank) {
    return InvalidArgument("ksizes, strides and rates must have ", rank, " elements");
  }
  Windows windows;
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (size_t i = 0; i < rank; ++i) {
    for (const auto* list : {&sizes, &strides, &rates}) {
      if ((*list)[i] < 1 || (*list)[i] >= kLimit) {
        return InvalidArgument("ksizes, strides and rates must be positive, got ", (*list)[i]);
      }
      if ((i == 0 || i + 1 == rank) && (*list)[i] != 1) {
        return InvalidArgument(
            "Only support ksizes, strides and rates of 1 for batch and channels, "
            "got ",
            (*list)[i]);
      }
    }
    if (i > 0 && i + 1 < rank) windows.push_back({sizes[i], strides[i], rates[i]});
  }
  return windows;
}

// [batch, out..., sizes * channels].
StatusOr<PartialShape> PatchesShape(const PartialShape& in, Windows& windows, bool same) {
  PartialShape out = in;
  const int last = in.rank() - 1;
  int64_t depth = in.dim(last);
  for (size_t i = 0; i < windows.size(); ++i) {
    const int d = static_cast<int>(i) + 1;
    if (in.dim(d) >= 0) {
      windows[i].Fit(in.dim(d), same);
      out.set_dim(d, windows[i].out);
    }
    if (depth >= 0 && __builtin_mul_overflow(depth, windows[i].size, &depth)) {
      return InvalidArgument("patches of ", in.ToString(), " are too large");
    }
  }
  out.set_dim(last, depth);
  return out;
}

// The patches of image n: out[place..., offset..., c] = image[place * stride + offset * rate - before, c], zero
// outside. Iterates over places and offsets together as one counter of 2 * windows digits.
template <typename T>
void TakePatches(const Windows& windows, const IntList& in, const IntList& strides, int64_t channels, const T* image,
                 T* out) {
  const int m = static_cast<int>(windows.size());
  int64_t places = 1, offsets = 1;
  for (const Window& w : windows) places *= w.out, offsets *= w.size;
  IntList place(m, 0), offset(m, 0);
  for (int64_t p = 0; p < places; ++p) {
    for (int64_t o = 0; o < offsets; ++o, out += channels) {
      int64_t at = 0;
      bool inside = true;
      for (int i = 0; i < m; ++i) {
        const Window& w = windows[i];
        const int64_t x = place[i] * w.stride + offset[i] * w.rate - w.before;
        inside = inside && x >= 0 && x < in[i];
        at += x * strides[i];
      }
      if (inside) {
        std::copy_n(image + at, channels, out);
      } else {
        std::fill_n(out, channels, T{});
      }
      for (int i = m - 1; i >= 0 && ++offset[i] == windows[i].size; --i) offset[i] = 0;
    }
    for (int i = m - 1; i >= 0 && ++place[i] == windows[i].out; --i) place[i] = 0;
  }
}

class ExtractPatchesKernel : public Kernel {
 public:
  explicit ExtractPatchesKernel(KernelInit& init) {
    auto windows = WindowsOf(init.node());
    if (windows.ok()) {
      windows_ = *windows;
    } else {
      init.Fail(windows.status());
    }
    std::string padding;
    init.Attr("padding", &padding);
    same_ = padding == "SAME";
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    const int m = static_cast<int>(windows_.size());
    if (images.rank() != m + 2) {
      return InvalidArgument("input must be ", m + 2, "-dimensional, got ", images.shape().ToString());
    }
    Windows windows = windows_;
    MR_ASSIGN_OR_RETURN(const PartialShape partial, PatchesShape(images.shape(), windows, same_));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(partial.dims()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const auto all = RowMajorStrides(images.shape().dims());
    const IntList strides(all.begin() + 1, all.end() - 1);
    const IntList in(images.shape().dims().begin() + 1, images.shape().dims().end() - 1);
    const int64_t channels = images.dim(m + 1);
    const int64_t from = images.num_elements() / images.dim(0);
    const int64_t to = shape.num_elements() / shape.dim(0);
    const bool known = DispatchMove(images.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      ctx.ParallelFor(images.dim(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          TakePatches(windows, in, strides, channels, images.raw<T>() + n * from, out->raw<T>() + n * to);
        }
      });
    });
    return known ? absl::OkStatus() : InvalidArgument("patches of ", images.dtype(), " cannot be taken");
  }

 private:
  Windows windows_;
  bool same_ = false;
};

Status ExtractPatchesShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(Windows windows, WindowsOf(c.node()));
  MR_ASSIGN_OR_RETURN(const std::string padding, c.Attr<std::string>("padding"));
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(0, static_cast<int>(windows.size()) + 2));
  MR_ASSIGN_OR_RETURN(PartialShape out, PatchesShape(in, windows, padding == "SAME"));
  c.set_output(0, out);
  return absl::OkStatus();
}

// The patches of a tensor that holds its element numbers from 1 tell which element each gradient belongs to; 0 is
// padding.
Status ExtractPatchesGradient(GradientContext& c) {
  const Endpoint images = c.input(0);
  const auto int64 = [&](int64_t v) { return c.Scalar<int64_t>(v); };
  const Endpoint size = c.Op("Size", {images}, {{"out_type", DType::kInt64}});
  const Endpoint count = c.Add(size, int64(1));
  const Endpoint shape = c.Shape(images);
  const bool volume = c.node()->is_type("ExtractVolumePatches");
  const Endpoint numbers = c.Reshape(c.Op("Range", {int64(1), count, int64(1)}), shape);
  const Endpoint sources = c.Op(volume ? "ExtractVolumePatches" : "ExtractImagePatches", {numbers},
                                c.CopyAttrs({"ksizes", "strides", "rates", "padding"}));
  const Endpoint flat = c.Ints({-1});
  const Endpoint sums = c.Op("UnsortedSegmentSum", {c.Reshape(c.grad(), flat), c.Reshape(sources, flat), count});
  const Endpoint inside = c.Op("Slice", {sums, c.Ints({1}), c.Ints({-1})});
  c.set_input_grad(0, c.Reshape(inside, shape));
  return absl::OkStatus();
}

MILLRACE_OP(ExtractImagePatches)
    .Input("images: T")
    .Output("patches: T")
    .Attr("ksizes: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("rates: list(int) >= 4")
    .Attr(
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, "
        "uint64, complex64, complex128, bool}")
    .Attr("padding: {'SAME', 'VALID'}")
    .Shape(ExtractPatchesShape)
    .Gradient(ExtractPatchesGradient)
    .Summary("Extracts patches of images to the channels.");
MILLRACE_KERNEL(ExtractImagePatches, kCpu, ExtractPatchesKernel);

MILLRACE_OP(ExtractVolumePatches)
    .Input("input: T")
    .Output("patches: T")
    .Attr("ksizes: list(int) >= 5")
    .Attr("strides: list(int) >= 5")
    .Attr("T: realnumbertype")
    .Attr("padding: {'SAME', 'VALID'}")
    .Shape(ExtractPatchesShape)
    .Gradient(ExtractPatchesGradient)
    .Summary("Extracts patches of volumes to the channels.");
MILLRACE_KERNEL(ExtractVolumePatches, kCpu, ExtractPatchesKernel);

}  // namespace
}  // namespace millrace
