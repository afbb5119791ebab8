#include "millrace/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/exception_status.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/memory_budget.h"
#include "millrace/tensor/memory_limit.h"
#include "millrace/tensor/narrow_types.h"

namespace millrace {
namespace {

// Elements with constructors, such as strings, are always allocated on the heap.
template <typename T>
class ObjectBuffer final : public Buffer {
 public:
  static RefPtr<Buffer> New(size_t count) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes) || bytes > MaxAllocation()) return nullptr;
    std::unique_ptr<T[]> elements(new (std::nothrow) T[count]());
    if (elements == nullptr || !ChargeHeap(bytes)) return nullptr;
    return AdoptRef<Buffer>(new ObjectBuffer(elements.release(), count));
  }
  ~ObjectBuffer() override {
    ReleaseHeap(size_);
    delete[] static_cast<T*>(data_);
  }

 private:
  ObjectBuffer(T* elements, size_t count) : Buffer(elements, count * sizeof(T)) {}
};

RefPtr<Buffer> NewBuffer(DType dtype, int64_t count, size_t bytes, Allocator* allocator) {
  if (IsPlain(dtype)) return allocator->Allocate(bytes);
  if (dtype == DType::kString) return ObjectBuffer<std::string>::New(count);
  if (dtype == DType::kVariant) return ObjectBuffer<Variant>::New(count);
  return ObjectBuffer<ResourceHandle>::New(count);
}

Status NoMemory(DType dtype, const Shape& shape, size_t bytes, const Allocator& allocator) {
  return ResourceExhausted("no memory for a tensor of ", DTypeName(dtype), shape.ToString(), " (", bytes,
                           " bytes) from the ", allocator.name(), " allocator", allocator.Shortage(bytes));
}

constexpr size_t kMaxStringShown = 64;

void AppendElement(std::string* out, const std::string& v) {
  absl::StrAppend(out, "\"", absl::CHexEscape(absl::string_view(v).substr(0, kMaxStringShown)), "\"",
                  v.size() > kMaxStringShown ? "..." : "");
}
void AppendElement(std::string* out, const ResourceHandle& v) { absl::StrAppend(out, "<", v.DebugString(), ">"); }
void AppendElement(std::string* out, const Variant& v) { absl::StrAppend(out, "<", v.DebugString(), ">"); }
void AppendElement(std::string* out, bool v) { out->append(v ? "true" : "false"); }
void AppendElement(std::string* out, half v) { absl::StrAppend(out, static_cast<float>(v)); }
void AppendElement(std::string* out, bfloat16 v) { absl::StrAppend(out, static_cast<float>(v)); }
template <typename T>
void AppendElement(std::string* out, const std::complex<T>& v) {
  absl::StrAppend(out, "(", v.real(), ",", v.imag(), ")");
}
template <typename T>
void AppendElement(std::string* out, T v) {
  if constexpr (sizeof(T) == 1) {
    absl::StrAppend(out, static_cast<int>(v));
  } else {
    absl::StrAppend(out, v);
  }
}

// Prints `data` with a pair of brackets for each dimension until `left` elements are used up.
template <typename T>
void AppendElements(std::string* out, const T*& data, absl::Span<const int64_t> dims, int64_t& left) {
  if (dims.empty()) {
    AppendElement(out, *data++);
    --left;
    return;
  }
  out->append("[");
  for (int64_t i = 0; i < dims[0]; ++i) {
    if (i > 0) out->append(" ");
    if (left <= 0) {
      out->append("...");
      break;
    }
    AppendElements(out, data, dims.subspan(1), left);
  }
  out->append("]");
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape, Allocator* allocator) : dtype_(dtype), shape_(std::move(shape)) {
  MR_CHECK(IsKnown(dtype));
  const int64_t count = shape_.num_elements();
  const size_t bytes = static_cast<size_t>(count) * SizeOf(dtype);
  buffer_ = NewBuffer(dtype, count, bytes, allocator);
  if (!buffer_) throw OutOfMemory(std::string(NoMemory(dtype, shape_, bytes, *allocator).message()));
  data_ = buffer_->data();
}

Tensor::Tensor(DType dtype, Shape shape, RefPtr<Buffer> buffer, size_t offset)
    : dtype_(dtype), shape_(std::move(shape)), buffer_(std::move(buffer)) {
  MR_CHECK(buffer_ && offset <= buffer_->size() && TotalBytes() <= buffer_->size() - offset);
  data_ = static_cast<char*>(buffer_->data()) + offset;
}

StatusOr<Tensor> Tensor::Make(DType dtype, Shape shape, Allocator* allocator) {
  Tensor t;
  MR_RETURN_IF_ERROR(MakeInto(dtype, shape, allocator, &t));
  return t;
}

Status Tensor::MakeInto(DType dtype, const Shape& shape, Allocator* allocator, Tensor* out) {
  size_t bytes = SizeOf(dtype);
  if (bytes == 0) return InvalidArgument("tensors of type ", DTypeName(dtype), " are not supported");
  int64_t count = 1;
  bool fits = true;
  for (int64_t d : shape.dims()) fits &= d >= 0 && !__builtin_mul_overflow(count, d, &count);
  fits &= !__builtin_mul_overflow(bytes, static_cast<size_t>(count), &bytes);
  if (!fits || bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max())) {
    return InvalidArgument("a tensor of ", DTypeName(dtype), shape.ToString(), " is too large");
  }
  RefPtr<Buffer> buffer = NewBuffer(dtype, count, bytes, allocator);
  if (!buffer) {
    return NoMemory(dtype, shape, bytes, *allocator);
  }
  out->dtype_ = dtype;
  out->shape_ = shape;
  out->data_ = buffer->data();
  out->buffer_ = std::move(buffer);
  return absl::OkStatus();
}

Tensor Tensor::Slice(int64_t begin, int64_t end) const {
  MR_CHECK(rank() > 0 && begin >= 0 && begin <= end && end <= dim(0));
  Tensor t = *this;
  const int64_t row = shape_.Product(1, rank());
  t.data_ = static_cast<char*>(data_) + static_cast<size_t>(begin * row) * SizeOf(dtype_);
  t.shape_.set_dim(0, end - begin);
  return t;
}

Tensor Tensor::Row(int64_t i) const {
  Tensor t = Slice(i, i + 1);
  t.shape_.RemoveDim(0);
  return t;
}

StatusOr<Tensor> Tensor::Reshaped(Shape shape) const {
  if (shape.num_elements() != num_elements()) {
    return InvalidArgument("a tensor of shape ", shape_.ToString(), " cannot take the shape ", shape.ToString(), ": ",
                           num_elements(), " elements instead of ", shape.num_elements());
  }
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::ViewAs(DType dtype, Shape shape) const {
  Tensor t = *this;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::Clone(Allocator* allocator) const {
  if (!IsInitialized()) return Tensor();
  Tensor t(dtype_, shape_, allocator);
  const int64_t n = num_elements();
  if (dtype_ == DType::kString) {
    std::copy_n(raw<std::string>(), n, t.raw<std::string>());
  } else if (dtype_ == DType::kVariant) {
    std::copy_n(raw<Variant>(), n, t.raw<Variant>());
  } else if (!IsPlain(dtype_)) {
    std::copy_n(raw<ResourceHandle>(), n, t.raw<ResourceHandle>());
  } else if (n > 0) {
    std::memcpy(t.data_, data_, TotalBytes());
  }
  return t;
}

bool Tensor::SharesBufferWith(const Tensor& other) const {
  return buffer_ && other.buffer_ && buffer_->root() == other.buffer_->root();
}

std::string Tensor::DebugString(int max_entries) const {
  if (!IsInitialized()) return "no tensor";
  std::string out = absl::StrCat(DTypeName(dtype_), shape_.ToString(), " ");
  int64_t left = std::max(max_entries, 0);
  if (rank() == 0 && left == 0) return out + "...";
  if (num_elements() == 0) return out + "[]";
  if (IsFloat8(dtype_)) {
    std::vector<float> values(static_cast<size_t>(std::min(left, num_elements())));
    WidenElements(dtype_, raw<uint8_t>(), values.data(), static_cast<int64_t>(values.size()));
    const float* elements = values.data();
    AppendElements(&out, elements, shape_.dims(), left);
    return out;
  }
  const auto append = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* elements = raw<T>();
    AppendElements(&out, elements, shape_.dims(), left);
  };
  if (!DispatchType(PlainTypes(), UnquantizedType(dtype_), append)) {
    if (dtype_ == DType::kString) {
      append(TypeTag<std::string>());
    } else if (dtype_ == DType::kVariant) {
      append(TypeTag<Variant>());
    } else {
      append(TypeTag<ResourceHandle>());
    }
  }
  return out;
}

}  // namespace millrace
