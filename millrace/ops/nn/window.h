// Sliding windows over images: attributes, paddings and output sizes, shared by convolutions and pooling in two and
// three spatial dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/graph/graph.h"
#include "millrace/tensor/shape.h"

namespace millrace {

enum class WindowPadding { kValid, kSame, kExplicit };

StatusOr<WindowPadding> ParseWindowPadding(absl::string_view name);

// One spatial dimension.
struct WindowDim {
  int64_t in = 1;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_before = 0;
  int64_t pad_after = 0;
  int64_t out = 1;

  int64_t extent() const { return (window - 1) * dilation + 1; }
  friend bool operator==(const WindowDim&, const WindowDim&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const WindowDim& d) {
    return H::combine(std::move(h), d.in, d.window, d.stride, d.dilation, d.pad_before, d.pad_after, d.out);
  }
};

// The window attributes of a node, by spatial dimension (depth, height, width; in 2-D depth has size 1).
struct WindowAttrs {
  int rank = 2;  // spatial
  bool channels_first = false;
  WindowPadding padding = WindowPadding::kValid;
  std::array<int64_t, 3> window = {1, 1, 1};  // pools only
  std::array<int64_t, 3> strides = {1, 1, 1};
  std::array<int64_t, 3> dilations = {1, 1, 1};
  std::array<std::array<int64_t, 2>, 3> explicit_pads = {};

  // Reads strides, dilations, padding, explicit_paddings, data_format and ksize, as far as the op has them.
  // INVALID_ARGUMENT for lists of the wrong length or invalid values, UNIMPLEMENTED for windows over batch or channels.
  static StatusOr<WindowAttrs> FromNode(const Node& node);
  Status SetWindow(absl::Span<const int64_t> ksize);
  Status SetStrides(absl::Span<const int64_t> strides);

  int full_rank() const { return rank + 2; }
  int channel_axis() const { return channels_first ? 1 : rank + 1; }
  // The axis of spatial dimension i of [0, rank).
  int spatial_axis(int i) const { return channels_first ? 2 + i : 1 + i; }
  // The position of spatial dimension i of [0, rank) in the arrays of three.
  int slot(int i) const { return 3 - rank + i; }

  // Computes the paddings and the output size of array slot `s`; INVALID_ARGUMENT if the window does not fit. If `in`
  // or `window` is unknown (-1), so is the output size.
  StatusOr<WindowDim> Slide(int s, int64_t in, int64_t window) const;
};

// A shape of the node's layout.
Shape LayoutShape(const WindowAttrs& attrs, int64_t batch, const std::array<int64_t, 3>& spatial, int64_t channels);

}  // namespace millrace
