// Shapes of tensors: fully known (Shape) and partly known (PartialShape).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace tensorflow {
class TensorShapeProto;
}

namespace millrace {

namespace pb = ::tensorflow;

// The dimensions of a tensor. A value type. Every dimension is at least 0 and the number of elements fits into int64;
// Make and FromProto check this, the constructors do not.
class Shape {
 public:
  using Dims = absl::InlinedVector<int64_t, 4>;
  // TensorFlow's limit.
  static constexpr int kMaxRank = 254;

  Shape() = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  // INVALID_ARGUMENT if a dimension is negative, the rank exceeds kMaxRank or the number of elements overflows.
  static StatusOr<Shape> Make(absl::Span<const int64_t> dims);
  static StatusOr<Shape> FromProto(const pb::TensorShapeProto& proto);
  void ToProto(pb::TensorShapeProto* proto) const;

  int rank() const { return static_cast<int>(dims_.size()); }
  bool IsScalar() const { return dims_.empty(); }
  int64_t dim(int i) const { return dims_[i]; }
  absl::Span<const int64_t> dims() const { return dims_; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }
  // The product of dimensions [begin, end).
  int64_t Product(int begin, int end) const {
    int64_t n = 1;
    for (int i = begin; i < end; ++i) n *= dims_[i];
    return n;
  }

  void set_dim(int i, int64_t size) { dims_[i] = size; }
  void AddDim(int64_t size) { dims_.push_back(size); }
  void InsertDim(int at, int64_t size) { dims_.insert(dims_.begin() + at, size); }
  void RemoveDim(int at) { dims_.erase(dims_.begin() + at); }

  std::string ToString() const;  // "[2,3]"

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  Dims dims_;
};

// A partially known shape, as in shape inference: the rank and any dimension may be unknown. An unknown dimension is
// -1.
class PartialShape {
 public:
  static constexpr int64_t kUnknown = -1;

  PartialShape() = default;  // rank unknown
  PartialShape(std::initializer_list<int64_t> dims) : known_rank_(true), dims_(dims) {}
  explicit PartialShape(absl::Span<const int64_t> dims) : known_rank_(true), dims_(dims.begin(), dims.end()) {}
  PartialShape(const Shape& shape) : PartialShape(shape.dims()) {}  // NOLINT: widens

  static PartialShape Scalar() { return PartialShape(absl::Span<const int64_t>()); }
  static PartialShape UnknownOfRank(int rank) { return PartialShape(Shape::Dims(static_cast<size_t>(rank), kUnknown)); }
  // INVALID_ARGUMENT for a dimension below -1.
  static StatusOr<PartialShape> FromProto(const pb::TensorShapeProto& proto);
  void ToProto(pb::TensorShapeProto* proto) const;

  bool known_rank() const { return known_rank_; }
  int rank() const { return known_rank_ ? static_cast<int>(dims_.size()) : -1; }
  int64_t dim(int i) const { return dims_[i]; }
  void set_dim(int i, int64_t size) { dims_[i] = size; }
  void AddDim(int64_t size) { dims_.push_back(size); }
  absl::Span<const int64_t> dims() const { return dims_; }
  bool IsFullyDefined() const;
  // -1 when not fully defined.
  int64_t num_elements() const;
  // Requires IsFullyDefined().
  Shape AsShape() const { return Shape(absl::MakeConstSpan(dims_)); }

  // True if the known dimensions agree.
  bool IsCompatibleWith(const Shape& shape) const;
  bool IsCompatibleWith(const PartialShape& other) const;
  // Combines what is known from both; INVALID_ARGUMENT if they contradict each other.
  StatusOr<PartialShape> MergeWith(const PartialShape& other) const;

  std::string ToString() const;  // "[?,3]", "<unknown>"

  friend bool operator==(const PartialShape& a, const PartialShape& b) {
    return a.known_rank_ == b.known_rank_ && a.dims_ == b.dims_;
  }
  friend bool operator!=(const PartialShape& a, const PartialShape& b) { return !(a == b); }

 private:
  explicit PartialShape(Shape::Dims dims) : known_rank_(true), dims_(std::move(dims)) {}
  bool known_rank_ = false;
  Shape::Dims dims_;
};

}  // namespace millrace
