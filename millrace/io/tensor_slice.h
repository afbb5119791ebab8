// Slices of tensors, as checkpoints name them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/proto/checkpoint.pb.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// A rectangular slice of a tensor: for each dimension a start and a length, or the whole dimension. A value type.
class TensorSlice {
 public:
  static constexpr int64_t kWhole = -1;
  struct Extent {
    int64_t start = 0;
    int64_t length = kWhole;
    friend bool operator==(const Extent&, const Extent&) = default;
  };

  TensorSlice() = default;
  explicit TensorSlice(std::vector<Extent> extents) : extents_(std::move(extents)) {}
  // A whole tensor of that rank.
  static TensorSlice Whole(int rank) { return TensorSlice(std::vector<Extent>(static_cast<size_t>(rank))); }

  // Parses "0,2:-". INVALID_ARGUMENT for malformed text, a negative start or a length below 1.
  static StatusOr<TensorSlice> Parse(absl::string_view text);
  static StatusOr<TensorSlice> FromProto(const pb::TensorSliceProto& proto);
  void ToProto(pb::TensorSliceProto* proto) const;
  std::string ToString() const;

  int rank() const { return static_cast<int>(extents_.size()); }
  const Extent& extent(int i) const { return extents_[static_cast<size_t>(i)]; }
  int64_t start(int i) const { return extent(i).start; }

  // The shape of this slice of a tensor of shape `full`. INTERNAL, as in TensorFlow, if the rank differs or the slice
  // is out of bounds.
  StatusOr<Shape> ShapeIn(const Shape& full) const;
  // True if this slice is the whole tensor of shape `full`.
  bool Covers(const Shape& full) const;
  // The same slice with every length explicit. It must be within `full`.
  TensorSlice Resolved(const Shape& full) const;
  // Computes the intersection. Both must have explicit lengths and the same rank. Returns false if it is empty.
  bool Intersect(const TensorSlice& other, TensorSlice* common) const;

  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;

 private:
  std::vector<Extent> extents_;
};

// The parsed form of a shape_and_slice input: a slice of a tensor of shape `full`.
struct ShapeAndSlice {
  Shape full;
  TensorSlice slice;
  Shape part;  // the slice's own shape

  // Parses TensorFlow's notation, "3 2 0,2:-". INVALID_ARGUMENT for malformed text, INTERNAL for a slice outside the
  // shape.
  static StatusOr<ShapeAndSlice> Parse(absl::string_view text);
};

// The key of a slice of the tensor `name` in a checkpoint's index.
std::string SliceKey(absl::string_view name, const TensorSlice& slice);

// Copies the elements of `common` from one slice of a tensor to another. `from` holds elements [first, last) of
// `from_slice` in row-major order; `to` holds `to_slice`. All slices have explicit lengths, and `common` is within
// both. Elements are plain, or both are strings.
void CopyCommonPart(const TensorSlice& from_slice, const void* from, int64_t first, int64_t last,
                    const TensorSlice& common, const TensorSlice& to_slice, Tensor* to);

}  // namespace millrace
