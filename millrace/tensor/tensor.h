// Tensor: a typed, shaped view of reference-counted memory.
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

// Cheap to copy: copies share the memory. Concurrent reads are safe; writing requires the only reference (see
// RefCountIsOne) or memory that no other thread has seen yet.
class Tensor {
 public:
  // Uninitialized: dtype kInvalid, shape [0].
  Tensor() : shape_({0}) {}

  // Elements of plain types are undefined; strings, handles and variants are empty. Throws OutOfMemory if there is no
  // memory; Make returns an error instead.
  Tensor(DType dtype, Shape shape, Allocator* allocator = Allocator::Heap());

  // Views existing memory. `buffer` must hold at least shape.num_elements() elements from byte `offset` on.
  Tensor(DType dtype, Shape shape, RefPtr<Buffer> buffer, size_t offset = 0);

  // RESOURCE_EXHAUSTED if memory is exhausted, INVALID_ARGUMENT if the size overflows or the dtype is not supported.
  static StatusOr<Tensor> Make(DType dtype, Shape shape, Allocator* allocator = Allocator::Heap());
  // The same into `*out`, for hot paths. On an error `*out` is unchanged.
  static Status MakeInto(DType dtype, const Shape& shape, Allocator* allocator, Tensor* out);

  // A scalar.
  template <typename T>
  static Tensor Scalar(T value) {
    Tensor t(DTypeOf<T>(), Shape());
    t.data<T>()[0] = std::move(value);
    return t;
  }
  static Tensor Scalar(const char* text) { return Scalar(std::string(text)); }

  // A vector, or a tensor of the given shape; the number of values must match (checked).
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
  // The size of the elements in bytes; for strings, of the string objects without their text.
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
  // The memory as T without a check: for code that only copies elements (DispatchMove).
  template <typename T>
  T* raw() const {
    return static_cast<T*>(data_);
  }

  // Rows [begin, end) of the first dimension, sharing memory. The result may be unaligned.
  Tensor Slice(int64_t begin, int64_t end) const;
  // Row i of the first dimension, with that dimension removed, sharing memory.
  Tensor Row(int64_t i) const;
  // The same memory under another shape with the same number of elements.
  StatusOr<Tensor> Reshaped(Shape shape) const;
  // The same memory as another plain type of the same element size, or another shape; unchecked.
  Tensor ViewAs(DType dtype, Shape shape) const;
  // A deep copy.
  Tensor Clone(Allocator* allocator = Allocator::Heap()) const;

  // Releases the memory and becomes uninitialized; the shape is left unchanged.
  void Reset() {
    buffer_.reset();
    data_ = nullptr;
    dtype_ = DType::kInvalid;
  }

  // Takes ownership of `from`'s memory, viewed as another type of the same element size or another shape with the same
  // number of elements. `from` can still read the memory but no longer owns it, and must not outlive this tensor. This
  // is how a kernel writes its output in place over an input that it still reads.
  void TakeMemory(Tensor& from, DType dtype, const Shape& shape) {
    dtype_ = dtype;
    shape_ = shape;
    buffer_ = std::move(from.buffer_);
    data_ = from.data_;
  }

  bool SharesBufferWith(const Tensor& other) const;
  // True if this tensor holds the only reference to writable memory, so that it may be updated in place.
  bool RefCountIsOne() const {
    return buffer_ && buffer_->writable() && buffer_->IsUnique() && buffer_->root() == buffer_.get();
  }
  bool IsAligned() const { return reinterpret_cast<uintptr_t>(data_) % Buffer::kAlignment == 0; }
  const RefPtr<Buffer>& buffer() const { return buffer_; }

  // "float[2,3] [[1 2 3] [4 5 6]]": at most `max_entries` elements, then "...".
  std::string DebugString(int max_entries = 10) const;

 private:
  // The dtype of the stored elements: a reference to a variable is stored as a handle.
  DType ElementType() const { return IsRef(dtype_) ? DType::kResource : dtype_; }

  DType dtype_ = DType::kInvalid;
  Shape shape_;
  RefPtr<Buffer> buffer_;
  void* data_ = nullptr;
};

}  // namespace millrace
