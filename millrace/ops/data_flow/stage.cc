// Staging areas: Stage and Unstage, and by key MapStage, OrderedMapStage and related ops.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/staging_area.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Finds or creates the staging area of a node; every op that uses it names it.
class AreaNode {
 public:
  explicit AreaNode(KernelInit& init) {
    StatusOr<ResourceName> where = ResourceName::Of(init.node());
    if (where.ok()) {
      where_ = *std::move(where);
    } else {
      init.Fail(where.status());
    }
    std::vector<DType> types;
    init.Attr("dtypes", &types);
    init.Attr("capacity", &options_.capacity);
    init.Attr("memory_limit", &options_.memory_limit);
    options_.name = where_.name;
    options_.num_components = static_cast<int64_t>(types.size());
  }

  StatusOr<RefPtr<StagingArea>> Find(const KernelContext& ctx) const {
    return ctx.resources()->LookupOrCreate<StagingArea>(
        where_.container, where_.name,
        [this]() -> StatusOr<RefPtr<StagingArea>> { return MakeRef<StagingArea>(options_); });
  }

 private:
  ResourceName where_;
  StagingArea::Options options_;
};

std::vector<Tensor> InputsFrom(const KernelContext& ctx, int first) {
  std::vector<Tensor> values;
  for (int i = first; i < ctx.num_inputs(); ++i) values.push_back(ctx.input(i));
  return values;
}

StatusOr<int64_t> KeyInput(const Tensor& key) {
  if (key.rank() == 0) return key.scalar<int64_t>();
  return InvalidArgument("key must be an int64 scalar, got tensor with shape: ", key.shape().ToString());
}

StatusOr<std::vector<int32_t>> ComponentsInput(const Tensor& indices) {
  if (indices.rank() > 1) return InvalidArgument("indices must be a vector, got shape ", indices.shape().ToString());
  const absl::Span<const int32_t> flat = indices.flat<int32_t>();
  for (size_t i = 1; i < flat.size(); ++i) {
    if (flat[i] <= flat[i - 1]) return InvalidArgument("Indices are not strictly ordered");
  }
  return std::vector<int32_t>(flat.begin(), flat.end());
}

class StageKernel : public AsyncKernel {
 public:
  explicit StageKernel(KernelInit& init) : node_(init) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<StagingArea>> area = node_.Find(ctx);
    if (!area.ok()) return done(area.status());
    (*area)->Put(CallingOp(ctx), InputsFrom(ctx, 0), std::move(done));
  }

 private:
  AreaNode node_;
};

class MapStageKernel : public AsyncKernel {
 public:
  explicit MapStageKernel(KernelInit& init) : node_(init) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<StagingArea>> area = node_.Find(ctx);
    if (!area.ok()) return done(area.status());
    StatusOr<int64_t> key = KeyInput(ctx.input(0));
    if (!key.ok()) return done(key.status());
    StatusOr<std::vector<int32_t>> components = ComponentsInput(ctx.input(1));
    if (!components.ok()) return done(components.status());
    std::vector<Tensor> values = InputsFrom(ctx, 2);
    if (values.size() != components->size()) {
      return done(InvalidArgument("there are ", components->size(), " indices for ", values.size(), " values"));
    }
    (*area)->PutAt(CallingOp(ctx), *key, *std::move(components), std::move(values), std::move(done));
  }

 private:
  AreaNode node_;
};

enum class GetKind { kUnstage, kStagePeek, kMapUnstage, kMapPeek, kMapUnstageNoKey };

template <GetKind kKind>
class GetKernel : public AsyncKernel {
 public:
  explicit GetKernel(KernelInit& init) : node_(init) {}
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<StagingArea>> area = node_.Find(ctx);
    if (!area.ok()) return done(area.status());
    StatusOr<StagingArea::Request> request = ReadRequest(ctx);
    if (!request.ok()) return done(request.status());
    (*area)->Get(CallingOp(ctx), *std::move(request),
                 [&ctx, done = std::move(done)](StatusOr<StagingArea::Item> item) mutable {
                   done(item.ok() ? Emit(ctx, *std::move(item)) : item.status());
                 });
  }

 private:
  static StatusOr<StagingArea::Request> ReadRequest(const KernelContext& ctx) {
    StagingArea::Request request;
    request.remove = kKind != GetKind::kStagePeek && kKind != GetKind::kMapPeek;
    if constexpr (kKind == GetKind::kUnstage) return request;
    if constexpr (kKind == GetKind::kStagePeek) {
      if (ctx.input(0).rank() != 0) {
        return InvalidArgument("index must be scalar, got shape ", ctx.input(0).shape().ToString());
      }
      request.by = StagingArea::Request::By::kPosition;
      request.number = ctx.input(0).scalar<int32_t>();
      return request;
    }
    request.whole = false;
    if constexpr (kKind == GetKind::kMapUnstage || kKind == GetKind::kMapPeek) {
      request.by = StagingArea::Request::By::kKey;
      MR_ASSIGN_OR_RETURN(request.number, KeyInput(ctx.input(0)));
    }
    MR_ASSIGN_OR_RETURN(request.components, ComponentsInput(ctx.input(ctx.num_inputs() - 1)));
    return request;
  }

  static Status Emit(KernelContext& ctx, StagingArea::Item item) {
    constexpr int kFirst = kKind == GetKind::kMapUnstageNoKey ? 1 : 0;
    if (static_cast<int>(item.values.size()) + kFirst != ctx.num_outputs()) {
      return InvalidArgument("the tuple has ", item.values.size(), " components, the node gives ",
                             ctx.num_outputs() - kFirst);
    }
    if (kFirst == 1) ctx.SetOutput(0, Tensor::Scalar<int64_t>(item.key));
    for (size_t i = 0; i < item.values.size(); ++i) {
      const int output = static_cast<int>(i) + kFirst;
      if (item.values[i].dtype() != ctx.output_type(output)) {
        return Internal("Output ", output, " of type ", item.values[i].dtype(), " does not match declared output type ",
                        ctx.output_type(output));
      }
      ctx.SetOutput(output, std::move(item.values[i]));
    }
    return absl::OkStatus();
  }

  AreaNode node_;
};

class ClearKernel : public Kernel {
 public:
  explicit ClearKernel(KernelInit& init) : node_(init) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StagingArea> area, node_.Find(ctx));
    area->Clear(CallingOp(ctx));
    return absl::OkStatus();
  }

 private:
  AreaNode node_;
};

template <bool kIncomplete>
class StageSizeKernel : public Kernel {
 public:
  explicit StageSizeKernel(KernelInit& init) : node_(init) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<StagingArea> area, node_.Find(ctx));
    const int64_t size = kIncomplete ? area->incomplete_size() : area->size();
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(size)));
    return absl::OkStatus();
  }

 private:
  AreaNode node_;
};

#define MR_AREA(builder, min_dtypes, shape_fn, text) \
  builder.Attr("capacity: int >= 0 = 0")             \
      .Attr("memory_limit: int >= 0 = 0")            \
      .Attr("dtypes: list(type)" min_dtypes)         \
      .Attr("container: string = ''")                \
      .Attr("shared_name: string = ''")              \
      .Stateful()                                    \
      .Shape(shape_fn)                               \
      .NotDifferentiable()                           \
      .Summary(text)
#define MR_SIZE_OP(name, text) MR_AREA(MILLRACE_OP(name).Output("size: int32"), "", ScalarShape, text)

MR_AREA(MILLRACE_OP(Stage).Input("values: dtypes"), " >= 1", NoOutputs, "Puts a tuple into a staging area.")
    .Trait(OpTrait::kWaits);
MR_AREA(MILLRACE_OP(Unstage).Output("values: dtypes"), " >= 1", UnknownShape, "Takes the first tuple of an area.")
    .Trait(OpTrait::kWaits);
MR_AREA(MILLRACE_OP(StagePeek).Input("index: int32").Output("values: dtypes"), " >= 1", UnknownShape,
        "A tuple of an area, which stays there.")
    .Trait(OpTrait::kWaits);
MR_AREA(MILLRACE_OP(StageClear), "", NoOutputs, "Empties a staging area.");
MR_SIZE_OP(StageSize, "How many tuples an area has.");

// OrderedMapStage returns the lowest key first; the order of MapStage is unspecified.
#define MR_MAP_OPS(prefix)                                                                                            \
  MR_AREA(MILLRACE_OP(prefix##Stage).Input("key: int64").Input("indices: int32").Input("values: fake_dtypes"), "",    \
          NoOutputs, "Puts components of the tuple of a key into an area.")                                           \
      .Attr("fake_dtypes: list(type) >= 1")                                                                           \
      .Trait(OpTrait::kWaits);                                                                                        \
  MR_AREA(MILLRACE_OP(prefix##Unstage).Input("key: int64").Input("indices: int32").Output("values: dtypes"), " >= 1", \
          UnknownShape, "Takes components of the tuple of a key.")                                                    \
      .Trait(OpTrait::kWaits);                                                                                        \
  MR_AREA(MILLRACE_OP(prefix##Peek).Input("key: int64").Input("indices: int32").Output("values: dtypes"), " >= 1",    \
          UnknownShape, "Components of the tuple of a key, which stay there.")                                        \
      .Trait(OpTrait::kWaits);                                                                                        \
  MR_AREA(MILLRACE_OP(prefix##UnstageNoKey).Input("indices: int32").Output("key: int64").Output("values: dtypes"),    \
          " >= 1", KeyAndUnknownShapes, "Takes components of some tuple.")                                            \
      .Trait(OpTrait::kWaits);                                                                                        \
  MR_AREA(MILLRACE_OP(prefix##Clear), "", NoOutputs, "Empties a staging area.");                                      \
  MR_SIZE_OP(prefix##Size, "How many complete tuples an area has.");                                                  \
  MR_SIZE_OP(prefix##IncompleteSize, "How many tuples of an area lack components.");                                  \
  MILLRACE_KERNEL(prefix##Stage, kCpu, MapStageKernel);                                                               \
  MILLRACE_KERNEL(prefix##Unstage, kCpu, GetKernel<GetKind::kMapUnstage>);                                            \
  MILLRACE_KERNEL(prefix##Peek, kCpu, GetKernel<GetKind::kMapPeek>);                                                  \
  MILLRACE_KERNEL(prefix##UnstageNoKey, kCpu, GetKernel<GetKind::kMapUnstageNoKey>);                                  \
  MILLRACE_KERNEL(prefix##Clear, kCpu, ClearKernel);                                                                  \
  MILLRACE_KERNEL(prefix##Size, kCpu, StageSizeKernel<false>);                                                        \
  MILLRACE_KERNEL(prefix##IncompleteSize, kCpu, StageSizeKernel<true>)

Status KeyAndUnknownShapes(ShapeContext& c) {
  MR_RETURN_IF_ERROR(UnknownShape(c));
  c.set_output(0, PartialShape::Scalar());
  return absl::OkStatus();
}

MR_MAP_OPS(Map);
MR_MAP_OPS(OrderedMap);

MILLRACE_KERNEL(Stage, kCpu, StageKernel);
MILLRACE_KERNEL(Unstage, kCpu, GetKernel<GetKind::kUnstage>);
MILLRACE_KERNEL(StagePeek, kCpu, GetKernel<GetKind::kStagePeek>);
MILLRACE_KERNEL(StageClear, kCpu, ClearKernel);
MILLRACE_KERNEL(StageSize, kCpu, StageSizeKernel<false>);

}  // namespace
}  // namespace millrace
