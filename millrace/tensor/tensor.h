// A typed, shaped view of reference-counted memory.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/buffer.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// A cheap value: copying shares the memory. Two threads may read one tensor; writing needs the only
// reference (see RefCountIsOne) or a memory nobody else looks at yet.
class Tensor {
 public:
  // No tensor at all: dtype kInvalid, shape [0].
  Tensor() : shape_({0}) {}

  // Elements of plain types are undefined, strings and handles empty.
  Tensor(DType dtype, Shape shape, Allocator* allocator = Allocator::Heap());

  // Over memory that exists. `buffer` holds at least shape.num_elements() elements at `offset` bytes.
  Tensor(DType dtype, Shape shape, RefPtr<Buffer> buffer, size_t offset = 0);

  // RESOURCE_EXHAUSTED when there is no memory, INVALID_ARGUMENT when the size overflows.
  static StatusOr<Tensor> Make(DType dtype, Shape shape, Allocator* allocator = Allocator::Heap());
  // The same into `*out`, which stays as it was on an error: for hot paths.
  static Status MakeInto(DType dtype, const Shape& shape, Allocator* allocator, Tensor* out);

  // A scalar.
  template <typename T>
  static Tensor Scalar(T value) {
    Tensor t(DTypeOf<T>(), Shape());
    t.data<T>()[0] = std::move(value);
    return t;
  }
  static Tensor Scalar(const char* text) { return Scalar(std::string(text)); }

  // A vector, or the given shape; the number of values must fit.
  template <typename T>
  static Tensor Of(std::initializer_list<T> values) {
    return FromSpan<T>(absl::MakeConstSpan(values.begin(), values.size()),
                       Shape({static_cast<int64_t>(values.size())}));
  }
  template <typename T>
  static Tensor Of(Shape shape, std::initializer_list<T> values) {
    return FromSpan<T>(absl::MakeConstSpan(values.begin(), values.size()), std::move(shape));
  }
  template <typename T>
  static Tensor FromSpan(absl::Span<const T> values, Shape shape) {
    MR_CHECK(static_cast<int64_t>(values.size()) == shape.num_elements());
    Tensor t(DTypeOf<T>(), std::move(shape));
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  template <typename T>
  static Tensor FromVector(const std::vector<T>& values) {
    return FromSpan<T>(values, Shape({static_cast<int64_t>(values.size())}));
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t num_elements() const { return shape_.num_elements(); }
  // Bytes of the elements; for strings, of the string objects without their text.
  size_t TotalBytes() const { return static_cast<size_t>(num_elements()) * SizeOf(dtype_); }
  bool IsInitialized() const { return dtype_ != DType::kInvalid; }

  // The elements in row-major order. T must be the C++ type of dtype() (checked).
  template <typename T>
  T* data() {
    MR_CHECK(ElementType() == DTypeOf<T>());
    return static_cast<T*>(raw_data());
  }
  template <typename T>
  const T* data() const {
    return const_cast<Tensor*>(this)->data<T>();
  }
  template <typename T>
  absl::Span<T> flat() {
    return absl::Span<T>(data<T>(), static_cast<size_t>(num_elements()));
  }
  template <typename T>
  absl::Span<const T> flat() const {
    return absl::Span<const T>(data<T>(), static_cast<size_t>(num_elements()));
  }
  // The first element.
  template <typename T>
  T& scalar() {
    return *data<T>();
  }
  template <typename T>
  const T& scalar() const {
    return *data<T>();
  }
  void* raw_data() const { return data_; }
  // The memory as T, unchecked: for code that only moves elements (DispatchMove).
  template <typename T>
  T* raw() const {
    return static_cast<T*>(data_);
  }

  // Rows [begin, end) of the first dimension, sharing memory. Alignment may be lost.
  Tensor Slice(int64_t begin, int64_t end) const;
  // Row i of the first dimension, with that dimension removed.
  Tensor Row(int64_t i) const;
  // The same memory under another shape of as many elements.
  StatusOr<Tensor> Reshaped(Shape shape) const;
  // The same memory seen as another plain type of the same element size, or another shape; trusts.
  Tensor ViewAs(DType dtype, Shape shape) const;
  // A copy with memory of its own.
  Tensor Clone(Allocator* allocator = Allocator::Heap()) const;

  // Lets go of the memory: no tensor any more (the shape is left as it is).
  void Reset() {
    buffer_.reset();
    data_ = nullptr;
    dtype_ = DType::kInvalid;
  }

  // Becomes the owner of `from`'s memory, seen as another type of the same element size or another shape of
  // as many elements. `from` goes on seeing the memory without owning it, and must go first: how a kernel
  // writes its output over an input that it still reads.
  void TakeMemory(Tensor& from, DType dtype, const Shape& shape) {
    dtype_ = dtype;
    shape_ = shape;
    buffer_ = std::move(from.buffer_);
    data_ = from.data_;
  }

  bool SharesBufferWith(const Tensor& other) const;
  // True when this object holds the only reference to memory that may be written: the moment for
  // an update in place.
  bool RefCountIsOne() const {
    return buffer_ && buffer_->writable() && buffer_->IsUnique() && buffer_->root() == buffer_.get();
  }
  bool IsAligned() const { return reinterpret_cast<uintptr_t>(data_) % Buffer::kAlignment == 0; }
  const RefPtr<Buffer>& buffer() const { return buffer_; }

  // "float[2,3] [[1 2 3] [4 5 6]]": at most `max_entries` elements, then "...".
  std::string DebugString(int max_entries = 10) const;

 private:
  // What the memory holds: a reference to a variable is a handle.
  DType ElementType() const { return IsRef(dtype_) ? DType::kResource : dtype_; }

  DType dtype_ = DType::kInvalid;
  Shape shape_;
  RefPtr<Buffer> buffer_;
  void* data_ = nullptr;
};

}  // namespace millrace
