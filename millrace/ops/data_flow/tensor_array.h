// TensorArray: an array of tensors that lives for one step, for use in loops.
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

// Every element is written once, and can be read only once if clear_after_read. A gradient array sums the values
// written to an element; an unwritten element reads as zeros if its shape is known. Thread-safe.
class TensorArray final : public Resource {
 public:
  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    int64_t size = 0;
    PartialShape element_shape = {};
    bool dynamic_size = false;
    bool clear_after_read = true;
    // All elements have the shape of the first one.
    bool identical_element_shapes = false;
    bool is_gradient = false;
  };

  explicit TensorArray(Options options);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  int64_t size() const;
  PartialShape element_shape() const;
  bool dynamic_size() const;

  // INVALID_ARGUMENT, naming the array and the index, if it fails.
  Status Write(int64_t index, Tensor value);
  // Writes value(i) to element index(i) for i in [0, n), in order, under one lock.
  Status WriteMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index, absl::FunctionRef<Tensor(int64_t)> value);
  StatusOr<Tensor> Read(int64_t index, Allocator* allocator);
  Status ReadMany(int64_t n, absl::FunctionRef<int64_t(int64_t)> index, Allocator* allocator,
                  std::vector<Tensor>* values);
  // Reads all elements. RESOURCE_EXHAUSTED if most of a huge array would be unwritten zeros.
  Status ReadAll(Allocator* allocator, std::vector<Tensor>* values);

  // A handle of the array that accumulates this array's gradients for `source`; created on the first call, after which
  // this array can no longer grow. Its elements have the shapes of this array's elements, with `prepend` in front.
  StatusOr<Tensor> Gradient(const std::string& source, const Shape& prepend, DType handle_dtype);

  // Releases the elements. Reads and writes fail afterwards.
  void Close();

  std::string DebugString() const override;

 private:
  struct Element {
    Tensor tensor;  // uninitialized if it is zeros or was cleared
    Shape shape;    // once written
    bool written = false;
    bool read = false;
    bool cleared = false;
  };

  // Elements at large indices are stored separately, so that a large size costs no memory.
  static constexpr int64_t kMaxDense = int64_t{1} << 20;
  Element& At(int64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Status WriteLocked(int64_t index, Tensor value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status AddLocked(int64_t index, Element& element, Tensor value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Tensor> ReadLocked(int64_t index, Allocator* allocator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  std::vector<Element> dense_ ABSL_GUARDED_BY(mu_);  // up to the highest index in use
  absl::flat_hash_map<int64_t, Element> far_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, Tensor>> gradients_ ABSL_GUARDED_BY(mu_);  // by source
};

// The array that input i refers to: a handle, a reference, or its name (a pair of strings). Valid as long as the input.
// INVALID_ARGUMENT if there is none.
StatusOr<TensorArray*> TensorArrayInput(const KernelContext& ctx, int i = 0);

// A scalar index.
StatusOr<int64_t> TensorArrayIndex(const Tensor& index);

// How TensorFlow's old ops refer to an array: by container and name.
Tensor TensorArrayNameTensor(const TensorArray& array);

}  // namespace millrace
