#include "millrace/ops/kernels/strided_slice_spec.h"

#include <algorithm>

#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

constexpr int64_t kNewAxis = -1;
constexpr int64_t kShrunk = -2;

bool Bit(int64_t mask, int i) { return i < 63 && ((mask >> i) & 1) != 0; }

// One dimension of the input before it is resolved.
struct DenseDim {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;
  bool known = true;        // begin, end and stride are
  bool whole_begin = true;  // masked
  bool whole_end = true;
  bool shrink = false;
};

struct DenseSpec {
  absl::InlinedVector<DenseDim, 8> dims;
  // For each dimension of the result: an input dimension or kNewAxis; kShrunk marks a removed dimension.
  absl::InlinedVector<int64_t, 8> result;
};

struct Arguments {
  int length;
  const IntList* begin;
  const IntList* end;
  const IntList* strides;
};

// Spreads the sparse arguments over the dimensions of the input.
StatusOr<DenseSpec> Spread(int rank, const Arguments& args, const StridedSliceMasks& masks) {
  DenseSpec spec;
  spec.dims.resize(rank);
  int ellipsis = -1;
  int new_axes_after = 0;
  for (int i = 0; i < args.length; ++i) {
    if (Bit(masks.ellipsis, i)) {
      if (ellipsis >= 0) return InvalidArgument("Multiple ellipses in slice spec not allowed");
      ellipsis = i;
    } else if (ellipsis >= 0 && Bit(masks.new_axis, i)) {
      ++new_axes_after;
    }
  }
  // Without an ellipsis, one is implied at the end.
  const int length = ellipsis < 0 ? args.length + 1 : args.length;
  if (ellipsis < 0) ellipsis = args.length;
  int dim = 0;
  for (int i = 0; i < length; ++i) {
    if (i == ellipsis) {
      const int next = std::min(rank - (length - i) + 1 + new_axes_after, rank);
      for (; dim < next; ++dim) spec.result.push_back(dim);
    } else if (Bit(masks.new_axis, i)) {
      spec.result.push_back(kNewAxis);
    } else {
      if (dim >= rank) {
        return InvalidArgument("Index out of range using input dim ", dim, "; input has only ", rank, " dims");
      }
      DenseDim& d = spec.dims[dim];
      d.known = args.begin != nullptr && args.end != nullptr && args.strides != nullptr;
      if (args.begin != nullptr) d.begin = (*args.begin)[i];
      if (args.end != nullptr) d.end = (*args.end)[i];
      if (args.strides != nullptr) d.stride = (*args.strides)[i];
      d.whole_begin = Bit(masks.begin, i);
      d.whole_end = Bit(masks.end, i);
      d.shrink = Bit(masks.shrink_axis, i);
      spec.result.push_back(d.shrink ? kShrunk : dim);
      ++dim;
    }
  }
  return spec;
}

// Resolves dimension i, of size `n` (-1 when unknown).
Status ResolveDim(int i, const DenseDim& d, int64_t n, StridedSliceSpec* spec) {
  int64_t begin = 0, size = -1;
  if (d.known && d.stride == 0) return InvalidArgument("strides[", i, "] must be non-zero");
  if (d.shrink && d.known && d.stride < 0) {
    return InvalidArgument("only stride 1 allowed on non-range indexing.");
  }
  const auto clamp = [&](int64_t x) {
    const int64_t low = d.stride > 0 ? 0 : -1;
    const int64_t high = d.stride > 0 ? n : n - 1;
    if (x < 0) x += n;
    return std::min(std::max(x, low), high);
  };
  if (d.shrink) {
    size = 1;
    if (d.known && n >= 0) {
      begin = d.begin < 0 ? d.begin + n : d.begin;
      if (begin < 0 || begin >= n) {
        return InvalidArgument("slice index ", d.begin, " of dimension ", i, " out of bounds.");
      }
    }
  } else if (d.known && n >= 0) {
    begin = d.whole_begin ? (d.stride > 0 ? 0 : n - 1) : clamp(d.begin);
    const int64_t end = d.whole_end ? (d.stride > 0 ? n : -1) : clamp(d.end);
    const int64_t interval = end - begin;
    size = interval == 0 || (interval < 0) != (d.stride < 0) ? 0
                                                             : interval / d.stride + (interval % d.stride != 0 ? 1 : 0);
  }
  spec->begin.push_back(size == 0 ? 0 : begin);
  // With at most one element the stride is irrelevant, and 1 cannot overflow.
  spec->stride.push_back(size == 0 || size == 1 ? 1 : d.stride);
  spec->size.push_back(size);
  return absl::OkStatus();
}

}  // namespace

StatusOr<StridedSliceMasks> StridedSliceMasks::Of(const Node& node) {
  StridedSliceMasks masks;
  MR_ASSIGN_OR_RETURN(masks.begin, node.Attr<int64_t>("begin_mask"));
  MR_ASSIGN_OR_RETURN(masks.end, node.Attr<int64_t>("end_mask"));
  MR_ASSIGN_OR_RETURN(masks.ellipsis, node.Attr<int64_t>("ellipsis_mask"));
  MR_ASSIGN_OR_RETURN(masks.new_axis, node.Attr<int64_t>("new_axis_mask"));
  MR_ASSIGN_OR_RETURN(masks.shrink_axis, node.Attr<int64_t>("shrink_axis_mask"));
  if ((masks.ellipsis & (masks.ellipsis - 1)) != 0) {
    return InvalidArgument("Multiple ellipses in slice spec not allowed");
  }
  return masks;
}

int64_t StridedSliceSpec::Offset(absl::Span<const int64_t> strides) const {
  int64_t offset = 0;
  for (size_t i = 0; i < begin.size(); ++i) offset += begin[i] * strides[i];
  return offset;
}

StatusOr<StridedSliceSpec> ResolveStridedSlice(const PartialShape& input, int length, const Tensor* begin,
                                               const Tensor* end, const Tensor* strides,
                                               const StridedSliceMasks& masks) {
  // A mask has a bit for each argument.
  if (length > 32) return InvalidArgument("a slice has at most 32 dimensions, got ", length);
  IntList lists[3];
  const IntList* given[3] = {nullptr, nullptr, nullptr};
  const Tensor* tensors[3] = {begin, end, strides};
  for (int i = 0; i < 3; ++i) {
    if (tensors[i] == nullptr) continue;
    MR_ASSIGN_OR_RETURN(lists[i], ReadIntVector(*tensors[i], "begin, end and strides"));
    if (static_cast<int>(lists[i].size()) != length) {
      return InvalidArgument("Expected begin, end, and strides to be 1D equal size tensors, but got ", "sizes ", length,
                             " and ", lists[i].size());
    }
    given[i] = &lists[i];
  }
  MR_ASSIGN_OR_RETURN(DenseSpec dense, Spread(input.rank(), {length, given[0], given[1], given[2]}, masks));
  StridedSliceSpec spec;
  spec.is_identity = true;
  for (int i = 0; i < input.rank(); ++i) {
    MR_RETURN_IF_ERROR(ResolveDim(i, dense.dims[i], input.dim(i), &spec));
    spec.is_identity = spec.is_identity && spec.stride[i] == 1 && spec.begin[i] == 0 && spec.size[i] == input.dim(i);
  }
  spec.shape = PartialShape::Scalar();
  for (int64_t source : dense.result) {
    if (source != kShrunk) spec.shape.AddDim(source == kNewAxis ? 1 : spec.size[source]);
  }
  return spec;
}

StatusOr<StridedSliceSpec> ResolveStridedSlice(const Shape& input, const Tensor& begin, const Tensor& end,
                                               const Tensor& strides, const StridedSliceMasks& masks) {
  if (strides.rank() != 1) {
    return InvalidArgument(
        "Expected begin, end, and strides to be 1D equal size tensors, but got "
        "shape ",
        strides.shape().ToString(), " for strides");
  }
  const int length = static_cast<int>(std::min<int64_t>(strides.dim(0), 1000));
  return ResolveStridedSlice(PartialShape(input), length, &begin, &end, &strides, masks);
}

StatusOr<Tensor> BroadcastToSlice(KernelContext& ctx, const Tensor& value, const Shape& slice) {
  if (value.shape() == slice) return value;
  const int lead = slice.rank() - value.rank();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < value.rank(); ++d) fits = value.dim(d) == 1 || value.dim(d) == slice.dim(lead + d);
  if (!fits) {
    return InvalidArgument("a slice of shape ", slice.ToString(), " cannot be assigned a value of shape ",
                           value.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(value.dtype(), slice));
  DispatchMove(value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < wide.num_elements(); ++i) {
      int64_t rest = i, at = 0, stride = 1;
      for (int d = value.rank() - 1; d >= 0; --d) {
        if (value.dim(d) != 1) at += rest % slice.dim(lead + d) * stride;
        rest /= slice.dim(lead + d);
        stride *= value.dim(d);
      }
      wide.raw<T>()[i] = value.raw<T>()[at];
    }
  });
  return wide;
}

}  // namespace millrace
