// An array of tensors that lives for one step: what loops read from and write to.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// Every element is written once, and read once where elements are cleared after they are read. A
// gradient array sums up what is written to an element; one that nobody wrote reads as zeros where
// its shape is known. Thread-safe.
class TensorArray final : public Resource {
 public:
  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    int64_t size = 0;
    PartialShape element_shape = {};
    bool dynamic_size = false;
    bool clear_after_read = true;
    // The first element's shape is every element's.
    bool identical_element_shapes = false;
    bool is_gradient = false;
  };

  explicit TensorArray(Options options);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  int64_t size() const;
  PartialShape element_shape() const;
  bool dynamic_size() const;

  // INVALID_ARGUMENT names the array and the index.
  Status Write(int64_t index, Tensor value);
  // Element index(i) becomes value(i), for i in [0, n): all under one lock, in order.
  Status WriteMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index,
                   absl::FunctionRef<Tensor(int64_t)> value);
  StatusOr<Tensor> Read(int64_t index, Allocator* allocator);
  Status ReadMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index, Allocator* allocator,
                  std::vector<Tensor>* values);
  // All elements. RESOURCE_EXHAUSTED when most of a huge array would be zeros that nobody wrote.
  Status ReadAll(Allocator* allocator, std::vector<Tensor>* values);

  // A handle of the array that gathers the gradients of this one for `source`; made at first. From
  // then on this array does not grow. Its elements have the shapes of those that were written here,
  // with `prepend` before.
  StatusOr<Tensor> Gradient(const std::string& source, const Shape& prepend, DType handle_dtype);

  // Lets go of the elements. Reading and writing fail from then on.
  void Close();

  std::string DebugString() const override;

 private:
  struct Element {
    Tensor tensor;  // none when it is zeros, or was cleared
    Shape shape;    // once written
    bool written = false;
    bool read = false;
    bool cleared = false;
  };

  // Elements far out are kept apart, so that a large number costs no memory.
  static constexpr int64_t kMaxDense = int64_t{1} << 20;
  Element& At(int64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Status WriteLocked(int64_t index, Tensor value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status AddLocked(int64_t index, Element& element, Tensor value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Tensor> ReadLocked(int64_t index, Allocator* allocator)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  const DType dtype_;
  const bool clear_after_read_;
  const bool identical_element_shapes_;
  const bool is_gradient_;

  mutable Mutex mu_;
  int64_t size_ ABSL_GUARDED_BY(mu_);
  PartialShape element_shape_ ABSL_GUARDED_BY(mu_);
  bool dynamic_size_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Element> dense_ ABSL_GUARDED_BY(mu_);  // as far as they were touched
  absl::flat_hash_map<int64_t, Element> far_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, Tensor>> gradients_ ABSL_GUARDED_BY(mu_);  // by source
};

// The array that input i points to: a handle, a reference, or the name of it (a pair of strings).
// It lives as long as the input. INVALID_ARGUMENT when there is none.
StatusOr<TensorArray*> TensorArrayInput(const KernelContext& ctx, int i = 0);

// A scalar index.
StatusOr<int64_t> TensorArrayIndex(const Tensor& index);

// What TensorFlow's old ops call an array by: its place and its name.
Tensor TensorArrayNameTensor(const TensorArray& array);

}  // namespace millrace
