// For nodes that create or find a queue, accumulator, table or barrier and return its handle.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// Finds or creates the resource of a node by its attrs container and shared_name and returns its handle, whose type is
// that of the node's output: a reference (string_ref) or a resource. Thread-safe.
template <typename R>
class ResourceSource {
 public:
  explicit ResourceSource(KernelInit& init) {
    StatusOr<ResourceName> where = ResourceName::Of(init.node());
    if (where.ok()) {
      where_ = *std::move(where);
    } else {
      init.Fail(where.status());
    }
    handle_dtype_ = init.output_type(0);
  }

  const std::string& name() const { return where_.name; }

  // Sets output 0. `make` creates the resource if there is none; `check` verifies that an existing one matches the
  // node.
  Status Emit(KernelContext& ctx, absl::FunctionRef<StatusOr<RefPtr<R>>()> make,
              absl::FunctionRef<Status(const R&)> check) {
    ResourceManager* const resources = ctx.resources();
    if (resources == nullptr) return Internal("the step has no resource manager");
    MutexLock lock(&mu_);
    // Read before the look-up, so that a later deletion is noticed.
    const uint64_t deletions = resources->deletions();
    if (resources_ != resources || deletions_ != deletions) {
      MR_ASSIGN_OR_RETURN(RefPtr<R> found, resources->LookupOrCreate<R>(where_.container, where_.name, make));
      MR_RETURN_IF_ERROR(check(*found));
      ResourceHandle handle;
      handle.device = ctx.device()->name();
      handle.container = where_.container;
      handle.name = where_.name;
      handle.type_name = R::kTypeName;
      handle.resource = std::move(found);
      handle_ = MakeHandleTensor(handle_dtype_, std::move(handle));
      resources_ = resources;
      deletions_ = deletions;
    }
    ctx.SetOutput(0, handle_);
    return absl::OkStatus();
  }

 private:
  ResourceName where_;
  DType handle_dtype_ = DType::kInvalid;

  Mutex mu_;
  // The cached handle, valid until a resource is deleted.
  const ResourceManager* resources_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t deletions_ ABSL_GUARDED_BY(mu_) = 0;
  Tensor handle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
