// AddSparseToTensorsMap, AddManySparseToTensorsMap and TakeManySparseFromTensorsMap: pass sparse tensors through queues
// as integer handles.
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/parsing/sparse_parts.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Thread-safe.
class SparseTensorsMap : public Resource {
 public:
  int64_t Add(SparsePart part) {
    MutexLock lock(&mu_);
    parts_.emplace(next_, std::move(part));
    return next_++;
  }
  // Takes all or none of them; INVALID_ARGUMENT, naming the handle, if one is missing.
  StatusOr<std::vector<SparsePart>> Take(absl::Span<const int64_t> handles) {
    MutexLock lock(&mu_);
    std::vector<SparsePart> taken;
    for (const int64_t handle : handles) {
      const auto at = parts_.find(handle);
      if (at == parts_.end())
        return InvalidArgument("Unable to find SparseTensor: ", handle, " in map: ", parts_.size(), " entries");
      taken.push_back(at->second);
    }
    for (const int64_t handle : handles) parts_.erase(handle);
    return taken;
  }
  std::string DebugString() const override {
    MutexLock lock(&mu_);
    return absl::StrCat("map of ", parts_.size(), " sparse tensors");
  }

 private:
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<int64_t, SparsePart> parts_ ABSL_GUARDED_BY(mu_);
};

// The three ops find the map by name and create it if there is none.
class MapKernel : public Kernel {
 public:
  explicit MapKernel(KernelInit& init) {
    StatusOr<ResourceName> where = ResourceName::Of(init.node());
    if (where.ok()) {
      where_ = *std::move(where);
    } else {
      init.Fail(where.status());
    }
  }

 protected:
  StatusOr<RefPtr<SparseTensorsMap>> Find(const KernelContext& ctx) const {
    return ctx.resources()->LookupOrCreate<SparseTensorsMap>(
        where_.container, where_.name,
        []() -> StatusOr<RefPtr<SparseTensorsMap>> { return MakeRef<SparseTensorsMap>(); });
  }

 private:
  ResourceName where_;
};

class AddKernel : public MapKernel {
 public:
  bool is_recorded() const override { return true; }
  using MapKernel::MapKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &shape = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckSparseInputs(indices, values, shape));
    if (indices.dim(0) != values.dim(0)) {
      return InvalidArgument("Number of values must match first dimension of indices. Got ", values.dim(0),
                             " values, indices shape: ", indices.shape().ToString());
    }
    if (indices.dim(1) != shape.dim(0)) {
      return InvalidArgument("Number of dimensions must match second dimension of indices. Got ", shape.dim(0),
                             " dimensions, indices shape: ", indices.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Find(ctx));
    int64_t handle = 0;
    CallingOp(ctx).Change([&] { handle = map->Add({indices, values, shape}); });
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(handle));
    return absl::OkStatus();
  }
};

class AddManyKernel : public MapKernel {
 public:
  bool is_recorded() const override { return true; }
  using MapKernel::MapKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(std::vector<SparsePart> parts, SplitSparseRows(ctx.input(0), ctx.input(1), ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor * handles, ctx.AllocateOutput(0, Shape({static_cast<int64_t>(parts.size())})));
    MR_ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Find(ctx));
    CallingOp(ctx).Change([&] {
      // Rows with entries are numbered first, as in TensorFlow.
      for (const bool with_entries : {true, false}) {
        for (size_t i = 0; i < parts.size(); ++i) {
          if ((parts[i].indices.dim(0) > 0) == with_entries) handles->data<int64_t>()[i] = map->Add(parts[i]);
        }
      }
    });
    return absl::OkStatus();
  }
};

class TakeManySparseKernel : public MapKernel {
 public:
  bool is_recorded() const override { return true; }
  using MapKernel::MapKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& handles = ctx.input(0);
    if (handles.rank() != 1)
      return InvalidArgument("sparse_handles should be a vector but received shape ", handles.shape().ToString());
    const int64_t n = handles.dim(0);
    if (n == 0) return InvalidArgument("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows");
    MR_ASSIGN_OR_RETURN(const RefPtr<SparseTensorsMap> map, Find(ctx));
    StatusOr<std::vector<SparsePart>> parts = absl::UnknownError("");
    CallingOp(ctx).Change([&] { parts = map->Take(handles.flat<int64_t>()); });
    MR_RETURN_IF_ERROR(parts.status());
    for (const SparsePart& part : *parts) {
      if (part.values.dtype() != ctx.output_type(1)) {
        return InvalidArgument("Requested SparseTensor of type ", ctx.output_type(1), " but the map has one of type ",
                               part.values.dtype());
      }
    }
    return JoinSparseParts(ctx, {n}, *parts);
  }
};

Status AddShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  c.set_output(0, PartialShape::Scalar());
  return absl::OkStatus();
}
Status AddManyShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(AddShape(c));
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}
Status TakeSparseShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  c.set_output(0, PartialShape::UnknownOfRank(2));
  c.set_output(1, PartialShape::UnknownOfRank(1));
  c.set_output(2, PartialShape::UnknownOfRank(1));
  return absl::OkStatus();
}

MILLRACE_OP(AddSparseToTensorsMap)
    .Input("sparse_indices: int64")
    .Input("sparse_values: T")
    .Input("sparse_shape: int64")
    .Output("sparse_handle: int64")
    .Attr("T: type")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(AddShape)
    .NotDifferentiable()
    .Summary("Adds a sparse tensor to a map and returns its handle.");
MILLRACE_OP(AddManySparseToTensorsMap)
    .Input("sparse_indices: int64")
    .Input("sparse_values: T")
    .Input("sparse_shape: int64")
    .Output("sparse_handles: int64")
    .Attr("T: type")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(AddManyShape)
    .NotDifferentiable()
    .Summary("Adds the rows of a sparse tensor to a map and returns their handles.");
MILLRACE_OP(TakeManySparseFromTensorsMap)
    .Input("sparse_handles: int64")
    .Output("sparse_indices: int64")
    .Output("sparse_values: dtype")
    .Output("sparse_shape: int64")
    .Attr("dtype: type")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(TakeSparseShape)
    .NotDifferentiable()
    .Summary("Removes sparse tensors from a map and returns them as one.");
MILLRACE_KERNEL(AddSparseToTensorsMap, kCpu, AddKernel);
MILLRACE_KERNEL(AddManySparseToTensorsMap, kCpu, AddManyKernel);
MILLRACE_KERNEL(TakeManySparseFromTensorsMap, kCpu, TakeManySparseKernel);

}  // namespace
}  // namespace millrace
