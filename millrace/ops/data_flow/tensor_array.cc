#include "millrace/ops/data_flow/tensor_array.h"

#include <algorithm>
#include <typeinfo>

#include "millrace/ops/data_flow/rows.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

constexpr char kTensorArrayContainer[] = "_tensor_arrays";

// Adds `more` to `sum`, whose memory is not shared. Returns false for types that cannot be added.
bool AddTo(Tensor* sum, const Tensor& more) {
  return DispatchType(NumberTypes{}, sum->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = sum->data<T>();
    const T* const from = more.data<T>();
    const int64_t n = sum->num_elements();
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  });
}

Shape Joined(const Shape& a, const Shape& b) {
  Shape joined = a;
  for (int64_t d : b.dims()) joined.AddDim(d);
  return joined;
}

}  // namespace

TensorArray::TensorArray(Options options)
    : name_(std::move(options.name)),
      dtype_(options.dtype),
      clear_after_read_(options.clear_after_read),
      identical_element_shapes_(options.identical_element_shapes),
      is_gradient_(options.is_gradient),
      size_(options.size),
      element_shape_(std::move(options.element_shape)),
      dynamic_size_(options.dynamic_size) {}

int64_t TensorArray::size() const {
  MutexLock lock(&mu_);
  return size_;
}

PartialShape TensorArray::element_shape() const {
  MutexLock lock(&mu_);
  return element_shape_;
}

bool TensorArray::dynamic_size() const {
  MutexLock lock(&mu_);
  return dynamic_size_;
}

Status TensorArray::CheckOpen() const {
  if (closed_) return InvalidArgument("TensorArray ", name_, " has already been closed.");
  return absl::OkStatus();
}

TensorArray::Element& TensorArray::At(int64_t index) {
  if (index >= kMaxDense) return far_[index];
  if (index >= static_cast<int64_t>(dense_.size())) {
    if (dense_.empty()) dense_.reserve(static_cast<size_t>(std::min<int64_t>(size_, 1024)));
    dense_.resize(static_cast<size_t>(index) + 1);
  }
  return dense_[static_cast<size_t>(index)];
}

Status TensorArray::Write(int64_t index, Tensor value) {
  MutexLock lock(&mu_);
  return WriteLocked(index, std::move(value));
}

Status TensorArray::WriteMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index,
                              absl::FunctionRef<Tensor(int64_t)> value) {
  MutexLock lock(&mu_);
  for (int64_t i = 0; i < n; ++i) MR_RETURN_IF_ERROR(WriteLocked(index(i), value(i)));
  return absl::OkStatus();
}

Status TensorArray::WriteLocked(int64_t index, Tensor value) {
  MR_RETURN_IF_ERROR(CheckOpen());
  if (value.dtype() != dtype_) {
    return InvalidArgument("TensorArray dtype is ", dtype_, " but Op is trying to write dtype ", value.dtype(), ".");
  }
  if (index < 0 || (index >= size_ && !dynamic_size_)) {
    return InvalidArgument("TensorArray ", name_, ": Tried to write to index ", index,
                           " but array is not resizeable and size is: ", size_);
  }
  if (!element_shape_.IsCompatibleWith(value.shape())) {
    return InvalidArgument("TensorArray ", name_, ": Could not write to TensorArray index ", index,
                           " because the value shape is ", value.shape().ToString(),
                           " which is incompatible with the TensorArray's inferred element shape: ",
                           element_shape_.ToString(), " (consider setting infer_shape=False).");
  }
  size_ = std::max(size_, index + 1);
  Element& element = At(index);
  if (element.read) {
    return InvalidArgument("TensorArray ", name_, ": Could not write to TensorArray index ", index,
                           " because it has already been read.");
  }
  if (element.written) return AddLocked(index, element, std::move(value));
  if (identical_element_shapes_ && !element_shape_.IsFullyDefined()) element_shape_ = PartialShape(value.shape());
  element.shape = value.shape();
  element.tensor = std::move(value);
  element.written = true;
  return absl::OkStatus();
}

Status TensorArray::AddLocked(int64_t index, Element& element, Tensor value) {
  if (!is_gradient_) {
    return InvalidArgument("TensorArray ", name_, ": Could not write to TensorArray index ", index,
                           " because it has already been written to.");
  }
  if (element.shape != value.shape()) {
    return InvalidArgument("TensorArray ", name_, ": Could not aggregate to TensorArray index ", index,
                           " because the existing shape is ", element.shape.ToString(), " but the new input shape is ",
                           value.shape().ToString(), ".");
  }
  if (!element.tensor.IsInitialized()) {
    element.tensor = std::move(value);
    return absl::OkStatus();
  }
  if (!element.tensor.RefCountIsOne()) element.tensor = element.tensor.Clone();
  if (AddTo(&element.tensor, value)) return absl::OkStatus();
  return InvalidArgument("TensorArray ", name_, ": values of type ", dtype_, " cannot be added up");
}

StatusOr<Tensor> TensorArray::Read(int64_t index, Allocator* allocator) {
  MutexLock lock(&mu_);
  return ReadLocked(index, allocator);
}

Status TensorArray::ReadMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index, Allocator* allocator,
                             std::vector<Tensor>* values) {
  MutexLock lock(&mu_);
  for (int64_t i = 0; i < n; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor value, ReadLocked(index(i), allocator));
    values->push_back(std::move(value));
  }
  return absl::OkStatus();
}

Status TensorArray::ReadAll(Allocator* allocator, std::vector<Tensor>* values) {
  MutexLock lock(&mu_);
  if (size_ > kMaxDense && size_ > static_cast<int64_t>(dense_.size() + far_.size())) {
    return ResourceExhausted("TensorArray ", name_, " has ", size_, " elements, most of which were not written");
  }
  for (int64_t i = 0; i < size_; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor value, ReadLocked(i, allocator));
    values->push_back(std::move(value));
  }
  return absl::OkStatus();
}

StatusOr<Tensor> TensorArray::ReadLocked(int64_t index, Allocator* allocator) {
  MR_RETURN_IF_ERROR(CheckOpen());
  if (index < 0 || index >= size_) {
    return InvalidArgument("Tried to read from index ", index, " but array size is: ", size_);
  }
  Element& element = At(index);
  if (element.cleared) {
    return InvalidArgument("TensorArray ", name_, ": Could not read index ", index,
                           " twice because it was cleared after a previous read (perhaps try setting "
                           "clear_after_read = false?).");
  }
  if (!element.written) {
    if (!element_shape_.IsFullyDefined()) {
      return InvalidArgument("TensorArray ", name_, ": Could not read from TensorArray index ", index,
                             " because nothing was written to it, and the element shape, which zeros would need, "
                             "is not fully defined: ",
                             element_shape_.ToString());
    }
    element.shape = element_shape_.AsShape();
    element.written = true;
  }
  if (!element.tensor.IsInitialized()) {
    MR_ASSIGN_OR_RETURN(element.tensor, Zeros(dtype_, element.shape, allocator));
  }
  element.read = true;
  if (!clear_after_read_) return element.tensor;
  element.cleared = true;
  return std::exchange(element.tensor, Tensor());
}

StatusOr<Tensor> TensorArray::Gradient(const std::string& source, const Shape& prepend, DType handle_dtype) {
  MutexLock lock(&mu_);
  dynamic_size_ = false;
  for (const auto& [existing, handle] : gradients_) {
    if (existing == source) return handle;
  }
  Options options;
  options.name = absl::StrCat(name_, "@", source);
  options.dtype = dtype_;
  options.size = size_;
  if (element_shape_.known_rank()) {
    options.element_shape = PartialShape(prepend);
    for (int64_t d : element_shape_.dims()) options.element_shape.AddDim(d);
  }
  options.identical_element_shapes = identical_element_shapes_;
  options.is_gradient = true;
  RefPtr<TensorArray> gradient = MakeRef<TensorArray>(std::move(options));
  {
    MutexLock gradient_lock(&gradient->mu_);
    const auto copy_shape = [&](int64_t index, const Element& element) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gradient->mu_) {
      if (!element.written) return;
      Element& copy = gradient->At(index);
      copy.shape = Joined(prepend, element.shape);
      copy.written = true;
    };
    for (size_t i = 0; i < dense_.size(); ++i) copy_shape(static_cast<int64_t>(i), dense_[i]);
    for (const auto& [index, element] : far_) copy_shape(index, element);
  }
  ResourceHandle handle;
  handle.container = kTensorArrayContainer;
  handle.name = gradient->name();
  handle.type_name = "tensorflow::TensorArray";
  handle.resource = std::move(gradient);
  gradients_.emplace_back(source, MakeHandleTensor(handle_dtype, std::move(handle)));
  return gradients_.back().second;
}

void TensorArray::Close() {
  std::vector<Element> dropped;
  absl::flat_hash_map<int64_t, Element> dropped_far;
  MutexLock lock(&mu_);
  closed_ = true;
  dropped.swap(dense_);
  dropped_far.swap(far_);
}

std::string TensorArray::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat("TensorArray ", name_, " of ", size_, " ", DTypeName(dtype_), element_shape_.ToString());
}

StatusOr<TensorArray*> TensorArrayInput(const KernelContext& ctx, int i) {
  const Tensor& tensor = ctx.input(i);
  if (tensor.dtype() == DType::kString) {
    if (tensor.num_elements() != 2) {
      return InvalidArgument("Tensor array handle must be 2-element vector, but had shape: ",
                             tensor.shape().ToString());
    }
    const std::string& name = tensor.data<std::string>()[1];
    // The step owns it, so the pointer is valid as long as the step.
    if (ctx.step().step_resources != nullptr) {
      if (RefPtr<TensorArray> found = ctx.step().step_resources->Find<TensorArray>(name)) return found.get();
    }
    return NotFound("Container of this step does not exist, or has no TensorArray ", name);
  }
  if (tensor.num_elements() == 1 && (tensor.dtype() == DType::kResource || IsRef(tensor.dtype()))) {
    Resource* const resource = tensor.scalar<ResourceHandle>().resource.get();
    if (resource != nullptr && typeid(*resource) == typeid(TensorArray)) return static_cast<TensorArray*>(resource);
  }
  return InvalidArgument("input ", i, " is not a handle of a TensorArray but ", tensor.DebugString());
}

StatusOr<int64_t> TensorArrayIndex(const Tensor& index) {
  if (index.rank() == 0) return index.scalar<int32_t>();
  return InvalidArgument("TensorArray index must be scalar, but had shape: ", index.shape().ToString());
}

Tensor TensorArrayNameTensor(const TensorArray& array) {
  return Tensor::Of<std::string>({kTensorArrayContainer, array.name()});
}

}  // namespace millrace
