// Parts of tensors, as checkpoints name them.
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

// A box of a tensor: for each dimension a start and a length, or all of it. A value.
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
  // All of a tensor of that rank.
  static TensorSlice Whole(int rank) { return TensorSlice(std::vector<Extent>(static_cast<size_t>(rank))); }

  // "0,2:-": INVALID_ARGUMENT for what makes no sense, a negative start or a length below 1.
  static StatusOr<TensorSlice> Parse(absl::string_view text);
  static StatusOr<TensorSlice> FromProto(const pb::TensorSliceProto& proto);
  void ToProto(pb::TensorSliceProto* proto) const;
  std::string ToString() const;

  int rank() const { return static_cast<int>(extents_.size()); }
  const Extent& extent(int i) const { return extents_[static_cast<size_t>(i)]; }
  int64_t start(int i) const { return extent(i).start; }

  // The shape of this part of a tensor. INTERNAL, as in TensorFlow, when it has another rank or is not all inside.
  StatusOr<Shape> ShapeIn(const Shape& full) const;
  // True when it is all of such a tensor.
  bool Covers(const Shape& full) const;
  // The same part with every length given; it is inside `full`.
  TensorSlice Resolved(const Shape& full) const;
  // Both have every length given and the same rank. False when they have no element in common.
  bool Intersect(const TensorSlice& other, TensorSlice* common) const;

  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;

 private:
  std::vector<Extent> extents_;
};

// What a shape_and_slice input says: a part of a tensor of this shape.
struct ShapeAndSlice {
  Shape full;
  TensorSlice slice;
  Shape part;  // the slice's own shape

  // "3 2 0,2:-", TensorFlow's notation. INVALID_ARGUMENT for what makes no sense, INTERNAL for a slice outside the shape.
  static StatusOr<ShapeAndSlice> Parse(absl::string_view text);
};

// The key under which an index has a slice of the tensor `name`.
std::string SliceKey(absl::string_view name, const TensorSlice& slice);

// Copies the elements of `common` out of a run of elements of a part of a tensor into another part. `from` has
// elements [first, last) in row-major order of the part `from_slice`; `to` is a tensor holding `to_slice`. Slices
// have every length given, and `common` is inside both. Elements are plain, or both are strings.
void CopyElements(const TensorSlice& from_slice, const void* from, int64_t first, int64_t last,
                  const TensorSlice& common, const TensorSlice& to_slice, Tensor* to);

}  // namespace millrace
