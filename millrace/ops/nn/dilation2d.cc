// Dilation2D: the grey-scale dilation of images, and its gradients.
#include <algorithm>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// One spatial dimension.
struct DilationDim {
  int64_t in = 0, filter = 0, stride = 1, rate = 1;
  int64_t out = 0, before = 0;

  // INVALID_ARGUMENT if no window fits.
  Status Fit(bool same) {
    const int64_t reach = (filter - 1) * rate + 1;
    out = same ? (in + stride - 1) / stride : in < reach ? 0 : (in - reach) / stride + 1;
    before = same ? std::max<int64_t>(0, (out - 1) * stride + reach - in) / 2 : 0;
    if (filter > 0 && (same || in >= reach)) return absl::OkStatus();
    return InvalidArgument("a filter of ", filter, " with the rate ", rate, " does not fit into a dimension of ", in);
  }
};

struct DilationAttrs {
  std::vector<int64_t> strides, rates;
  bool same = false;

  static StatusOr<DilationAttrs> FromNode(const Node& node) {
    DilationAttrs a;
    MR_ASSIGN_OR_RETURN(a.strides, node.Attr<std::vector<int64_t>>("strides"));
    MR_ASSIGN_OR_RETURN(a.rates, node.Attr<std::vector<int64_t>>("rates"));
    MR_ASSIGN_OR_RETURN(const std::string padding, node.Attr<std::string>("padding"));
    a.same = padding == "SAME";
    for (const auto* list : {&a.strides, &a.rates}) {
      if (list->size() != 4 || (*list)[0] != 1 || (*list)[3] != 1) {
        return InvalidArgument("strides and rates must have 4 elements, which are 1 for batch and channels");
      }
      // Products of two of them must not overflow.
      if (std::min((*list)[1], (*list)[2]) < 1 || std::max((*list)[1], (*list)[2]) >= int64_t{1} << 31) {
        return InvalidArgument("strides and rates must be positive");
      }
    }
    return a;
  }
  DilationDim Dim(int d, int64_t in, int64_t filter) const {
    return {.in = in, .filter = filter, .stride = strides[d], .rate = rates[d]};
  }
};

Status Dilation2DShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 3));
  MR_ASSIGN_OR_RETURN(const DilationAttrs attrs, DilationAttrs::FromNode(c.node()));
  PartialShape out = in;
  for (int d = 1; d <= 2; ++d) {
    out.set_dim(d, -1);
    if (in.dim(d) < 0 || filter.dim(d - 1) < 0) continue;
    DilationDim dim = attrs.Dim(d, in.dim(d), filter.dim(d - 1));
    MR_RETURN_IF_ERROR(dim.Fit(attrs.same));
    out.set_dim(d, dim.out);
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status LikeFilter(ShapeContext& c) {
  c.set_output(0, c.input(1));
  return absl::OkStatus();
}

Status Dilation2DGradient(GradientContext& c) {
  const auto attrs = c.CopyAttrs({"strides", "rates", "padding"});
  c.set_input_grad(0, c.Op("Dilation2DBackpropInput", {c.input(0), c.input(1), c.grad()}, attrs));
  c.set_input_grad(1, c.Op("Dilation2DBackpropFilter", {c.input(0), c.input(1), c.grad()}, attrs));
  return absl::OkStatus();
}

MILLRACE_OP(Dilation2D)
    .Summary("The maximum over a window of the image plus the filter.")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Attr("strides: list(int) >= 4")
    .Attr("rates: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Shape(Dilation2DShape)
    .Gradient(Dilation2DGradient);

MILLRACE_OP(Dilation2DBackpropInput)
    .Summary("The gradient of Dilation2D with respect to its input.")
    .Input("input: T")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("in_backprop: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Attr("strides: list(int) >= 4")
    .Attr("rates: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Shape(UnchangedShape)
    .NotDifferentiable();

MILLRACE_OP(Dilation2DBackpropFilter)
    .Summary("The gradient of Dilation2D with respect to its filter.")
    .Input("input: T")
    .Input("filter: T")
    .Input("out_backprop: T")
    .Output("filter_backprop: T")
    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}")
    .Attr("strides: list(int) >= 4")
    .Attr("rates: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID'}")
    .Shape(LikeFilter)
    .NotDifferentiable();

enum class DilationResult { kOutput, kInputGradient, kFilterGradient };

template <DilationResult kResult>
class Dilation2DKernel : public Kernel {
 public:
  explicit Dilation2DKernel(KernelInit& init) {
    auto attrs = DilationAttrs::FromNode(init.node());
    if (attrs.ok()) {
      attrs_ = *std::move(attrs);
    } else {
      init.Fail(attrs.status());
    }
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& filter = ctx.input(1);
    if (x.rank() != 4) return InvalidArgument("input must be 4-dimensional, but is of shape ", x.shape().ToString());
    if (filter.rank() != 3 || filter.dim(2) != x.dim(3)) {
      return InvalidArgument("filter must be of shape [rows, columns, ", x.dim(3), "], but is of shape ",
                             filter.shape().ToString());
    }
    DilationDim rows = attrs_.Dim(1, x.dim(1), filter.dim(0)), columns = attrs_.Dim(2, x.dim(2), filter.dim(1));
    MR_RETURN_IF_ERROR(rows.Fit(attrs_.same));
    MR_RETURN_IF_ERROR(columns.Fit(attrs_.same));
    const Shape out({x.dim(0), rows.out, columns.out, x.dim(3)});
    if (kResult != DilationResult::kOutput && ctx.input(2).shape() != out) {
      return InvalidArgument("out_backprop must be of shape ", out.ToString(), ", but is of shape ",
                             ctx.input(2).shape().ToString());
    }
    const Shape& shape = kResult == DilationResult::kOutput          ? out
                         : kResult == DilationResult::kInputGradient ? x.shape()
                                                                     : filter.shape();
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, shape));
    DispatchType(RealTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(y->data<T>(), y->num_elements(), T(0));
      // Images, or for the filter's gradient the channels, add to different elements.
      const bool by_channel = kResult == DilationResult::kFilterGradient;
      ctx.ParallelFor(x.dim(by_channel ? 3 : 0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = by_channel ? 0 : begin; b < (by_channel ? x.dim(0) : end); ++b) {
          for (int64_t c = by_channel ? begin : 0; c < (by_channel ? end : x.dim(3)); ++c) {
            Run<T>(ctx, rows, columns, b, c, y->data<T>());
          }
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  // Channel c of image b.
  template <typename T>
  void Run(KernelContext& ctx, const DilationDim& rows, const DilationDim& columns, int64_t b, int64_t c, T* y) const {
    const int64_t channels = ctx.input(0).dim(3);
    const T* x = ctx.input(0).data<T>() + b * rows.in * columns.in * channels + c;
    const T* filter = ctx.input(1).data<T>() + c;
    for (int64_t i = 0; i < rows.out; ++i) {
      for (int64_t j = 0; j < columns.out; ++j) {
        const int64_t top = i * rows.stride - rows.before, left = j * columns.stride - columns.before;
        auto largest = ComputeType<T>(std::numeric_limits<T>::lowest());
        int64_t source = std::max<int64_t>(top, 0) * columns.in + std::max<int64_t>(left, 0), tap = 0;
        for (int64_t p = 0; p < rows.filter; ++p) {
          const int64_t row = top + p * rows.rate;
          if (row < 0 || row >= rows.in) continue;
          for (int64_t q = 0; q < columns.filter; ++q) {
            const int64_t column = left + q * columns.rate;
            if (column < 0 || column >= columns.in) continue;
            const auto value =
                static_cast<ComputeType<T>>(static_cast<ComputeType<T>>(x[(row * columns.in + column) * channels]) +
                                            static_cast<ComputeType<T>>(filter[(p * columns.filter + q) * channels]));
            if (value <= largest) continue;
            largest = value;
            source = row * columns.in + column;
            tap = p * columns.filter + q;
          }
        }
        const int64_t at = ((b * rows.out + i) * columns.out + j) * channels + c;
        if constexpr (kResult == DilationResult::kOutput) {
          y[at] = static_cast<T>(largest);
        } else {
          T& sum = kResult == DilationResult::kInputGradient ? y[(b * rows.in * columns.in + source) * channels + c]
                                                             : y[tap * channels + c];
          sum = static_cast<T>(static_cast<ComputeType<T>>(sum) +
                               static_cast<ComputeType<T>>(ctx.input(2).data<T>()[at]));
        }
      }
    }
  }

  DilationAttrs attrs_;
};

MILLRACE_KERNEL(Dilation2D, kCpu, Dilation2DKernel<DilationResult::kOutput>);
MILLRACE_KERNEL(Dilation2DBackpropInput, kCpu, Dilation2DKernel<DilationResult::kInputGradient>);
MILLRACE_KERNEL(Dilation2DBackpropFilter, kCpu, Dilation2DKernel<DilationResult::kFilterGradient>);

}  // namespace
}  // namespace millrace
