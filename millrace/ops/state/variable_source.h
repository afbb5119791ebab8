// For nodes that create or find a variable and return its handle.
#pragma once

#include <string>

#include "millrace/base/mutex.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/variable.h"

namespace millrace {

// Finds or creates the variable of a VariableV2 or VarHandleOp node and returns its handle. A variable that was deleted
// in the meantime is created again, uninitialized. Thread-safe.
class VariableSource {
 public:
  // Reads the attrs container, shared_name, dtype and shape.
  explicit VariableSource(KernelInit& init);

  // A handle tensor of type `handle_dtype`: kResource or the variable's ref type.
  StatusOr<Tensor> Handle(KernelContext& ctx, DType handle_dtype);

  DType dtype() const { return dtype_; }

 private:
  StatusOr<RefPtr<Variable>> Find(ResourceManager& resources) const;

  ResourceName where_;
  DType dtype_ = DType::kInvalid;
  PartialShape shape_;
  bool on_device_ = false;  // the variable is in the memory of a GPU

  Mutex mu_;
  // The cached handle, valid until a resource is deleted.
  const ResourceManager* resources_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t deletions_ ABSL_GUARDED_BY(mu_) = 0;
  Tensor handle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
