#include "millrace/ops/state/variable_source.h"

namespace millrace {

VariableSource::VariableSource(KernelInit& init) {
  StatusOr<ResourceName> where = ResourceName::Of(init.node());
  if (!where.ok()) {
    init.Fail(where.status());
    return;
  }
  where_ = *std::move(where);
  // A device with its own memory has its own variables, which other devices cannot read.
  if (const Device* device = init.device(); device != nullptr && !device->shares_host_memory()) {
    where_.name += device->name().substr(device->name().rfind('/'));
    on_device_ = true;
  }
  init.Attr("dtype", &dtype_);
  init.Attr("shape", &shape_);
  // The op Variable expresses an unknown shape as a scalar's.
  if (init.node().is_type("Variable") && shape_.rank() == 0) shape_ = PartialShape();
}

StatusOr<RefPtr<Variable>> VariableSource::Find(ResourceManager& resources) const {
  MR_ASSIGN_OR_RETURN(
      RefPtr<Variable> variable,
      resources.LookupOrCreate<Variable>(where_.container, where_.name, [this]() -> StatusOr<RefPtr<Variable>> {
        return MakeRef<Variable>(where_.name, dtype_, shape_, on_device_);
      }));
  if (variable->dtype() != dtype_) {
    return InvalidArgument("variable ", where_.name, " exists as ", DTypeName(variable->dtype()), ", but is wanted as ",
                           DTypeName(dtype_));
  }
  return variable;
}

StatusOr<Tensor> VariableSource::Handle(KernelContext& ctx, DType handle_dtype) {
  ResourceManager* const resources = ctx.resources();
  if (resources == nullptr) return Internal("the step has no resource manager");
  MutexLock lock(&mu_);
  // Read before the look-up, so that a later deletion is noticed.
  const uint64_t deletions = resources->deletions();
  if (resources_ == resources && deletions_ == deletions) return handle_;
  MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, Find(*resources));
  ResourceHandle handle;
  handle.device = ctx.device()->name();
  handle.container = where_.container;
  handle.name = where_.name;
  handle.type_name = "tensorflow::Var";
  handle.dtypes_and_shapes.emplace_back(dtype_, shape_);
  handle.resource = std::move(variable);
  handle_ = MakeHandleTensor(handle_dtype, std::move(handle));
  resources_ = resources;
  deletions_ = deletions;
  return handle_;
}

}  // namespace millrace
