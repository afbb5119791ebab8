#include "millrace/ops/nn/window.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

// Sizes beyond this make sums of them overflow.
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

// Reads a list with one entry per dimension; those of batch and channels must be 1.
Status ReadDims(absl::Span<const int64_t> list, const WindowAttrs& a, absl::string_view name,
                std::array<int64_t, 3>* out) {
  if (static_cast<int>(list.size()) != a.full_rank()) {
    return InvalidArgument(name, " must have ", a.full_rank(), " entries, but is [", absl::StrJoin(list, ", "), "]");
  }
  for (int64_t v : list) {
    if (v <= 0 || v > kMaxSize) {
      return InvalidArgument(name, " must be positive, but are [", absl::StrJoin(list, ", "), "]");
    }
  }
  if (list[0] != 1 || list[a.channel_axis()] != 1) {
    return Unimplemented(name, " must be 1 along batch and channels, but are [", absl::StrJoin(list, ", "), "]");
  }
  for (int i = 0; i < a.rank; ++i) (*out)[a.slot(i)] = list[a.spatial_axis(i)];
  return absl::OkStatus();
}

Status ReadExplicit(const std::vector<int64_t>& list, WindowAttrs* a) {
  if (static_cast<int>(list.size()) != 2 * a->full_rank()) {
    return InvalidArgument("explicit_paddings must have ", 2 * a->full_rank(), " entries, but is [",
                           absl::StrJoin(list, ", "), "]");
  }
  for (int64_t v : list) {
    if (v < 0 || v > kMaxSize) {
      return InvalidArgument("explicit_paddings must not be negative, but are [", absl::StrJoin(list, ", "), "]");
    }
  }
  for (int axis : {0, a->channel_axis()}) {
    if (list[2 * axis] != 0 || list[2 * axis + 1] != 0) {
      return InvalidArgument("explicit_paddings must be 0 along batch and channels, but are [",
                             absl::StrJoin(list, ", "), "]");
    }
  }
  for (int i = 0; i < a->rank; ++i) {
    const int axis = a->spatial_axis(i);
    a->explicit_pads[a->slot(i)] = {list[2 * axis], list[2 * axis + 1]};
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<WindowPadding> ParseWindowPadding(absl::string_view name) {
  if (name == "VALID") return WindowPadding::kValid;
  if (name == "SAME") return WindowPadding::kSame;
  if (name == "EXPLICIT") return WindowPadding::kExplicit;
  return InvalidArgument("unknown padding ", name);
}

Status WindowAttrs::SetWindow(absl::Span<const int64_t> ksize) { return ReadDims(ksize, *this, "ksize", &window); }
Status WindowAttrs::SetStrides(absl::Span<const int64_t> values) {
  return ReadDims(values, *this, "strides", &strides);
}

StatusOr<WindowAttrs> WindowAttrs::FromNode(const Node& node) {
  using Ints = std::vector<int64_t>;
  WindowAttrs a;
  a.rank = absl::StrContains(node.type(), "3D") ? 3 : 2;
  if (node.FindAttr("data_format") != nullptr) {
    MR_ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
    if (format == "NCHW_VECT_C") return Unimplemented("data_format NCHW_VECT_C");
    a.channels_first = format.size() > 1 && format[1] == 'C';
  }
  MR_ASSIGN_OR_RETURN(const std::string padding, node.Attr<std::string>("padding"));
  MR_ASSIGN_OR_RETURN(a.padding, ParseWindowPadding(padding));
  if (node.FindAttr("strides") != nullptr) {
    MR_ASSIGN_OR_RETURN(const Ints strides, node.Attr<Ints>("strides"));
    MR_RETURN_IF_ERROR(a.SetStrides(strides));
  }
  if (node.FindAttr("ksize") != nullptr) {
    MR_ASSIGN_OR_RETURN(const Ints ksize, node.Attr<Ints>("ksize"));
    MR_RETURN_IF_ERROR(a.SetWindow(ksize));
  }
  if (node.FindAttr("dilations") != nullptr) {
    MR_ASSIGN_OR_RETURN(const Ints dilations, node.Attr<Ints>("dilations"));
    MR_RETURN_IF_ERROR(ReadDims(dilations, a, "dilations", &a.dilations));
  }
  if (a.padding == WindowPadding::kExplicit) {
    MR_ASSIGN_OR_RETURN(const Ints pads, node.Attr<Ints>("explicit_paddings"));
    MR_RETURN_IF_ERROR(ReadExplicit(pads, &a));
  }
  return a;
}

StatusOr<WindowDim> WindowAttrs::Slide(int s, int64_t in, int64_t window) const {
  WindowDim d{.in = in, .window = window, .stride = strides[s], .dilation = dilations[s]};
  if (in > kMaxSize || window > kMaxSize || (window > 0 && (window - 1) > kMaxSize / d.dilation)) {
    return InvalidArgument("an image of size ", in, " and a window of ", window, " dilated by ", d.dilation,
                           " are too large");
  }
  if (padding == WindowPadding::kSame) {
    d.out = in < 0 ? -1 : (in + d.stride - 1) / d.stride;
    if (in < 0 || window < 0) return d;
    const int64_t total = std::max<int64_t>((d.out - 1) * d.stride + d.extent() - in, 0);
    d.pad_before = total / 2;
    d.pad_after = total - d.pad_before;
    return d;
  }
  if (padding == WindowPadding::kExplicit) {
    d.pad_before = explicit_pads[s][0];
    d.pad_after = explicit_pads[s][1];
  }
  if (in < 0 || window < 0) {
    d.out = -1;
    return d;
  }
  const int64_t room = in + d.pad_before + d.pad_after - d.extent() + d.stride;
  if (room < 0) {
    return InvalidArgument("a window of ", window, " dilated by ", d.dilation, " does not fit into an image of ", in,
                           " padded by ", d.pad_before, " and ", d.pad_after);
  }
  d.out = room / d.stride;
  return d;
}

Shape LayoutShape(const WindowAttrs& attrs, int64_t batch, const std::array<int64_t, 3>& spatial, int64_t channels) {
  Shape shape({batch});
  if (attrs.channels_first) shape.AddDim(channels);
  for (int i = 0; i < attrs.rank; ++i) shape.AddDim(spatial[attrs.slot(i)]);
  if (!attrs.channels_first) shape.AddDim(channels);
  return shape;
}

}  // namespace millrace
