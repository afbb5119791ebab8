// Iterator ops: handles, initialization, and getting elements.
#include <utility>

#include "millrace/ops/dataset/captured_function.h"
#include "millrace/ops/dataset/element_request.h"
#include "millrace/ops/dataset/iterator_resource.h"
#include "millrace/ops/list/optional.h"
#include "millrace/proto/tensor.pb.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

// Finds or creates the iterator of a node by its container, shared_name, output_types and output_shapes.
class IteratorSource {
 public:
  explicit IteratorSource(KernelInit& init) {
    init.Attr("output_types", &types_);
    init.Attr("output_shapes", &shapes_);
    if (init.status().ok() && types_.size() != shapes_.size()) {
      init.Fail(InvalidArgument("output_types has ", types_.size(), " entries and output_shapes ", shapes_.size()));
    }
  }

  StatusOr<RefPtr<IteratorResource>> Find(KernelContext& ctx, ResourceHandle* handle) const {
    MR_ASSIGN_OR_RETURN(const ResourceName name, ResourceName::Of(ctx.node()));
    MR_ASSIGN_OR_RETURN(RefPtr<IteratorResource> iterator,
                        ctx.resources()->LookupOrCreate<IteratorResource>(
                            name.container, name.name, [&]() -> StatusOr<RefPtr<IteratorResource>> {
                              return MakeRef<IteratorResource>(name.name, types_, shapes_);
                            }));
    if (iterator->types() != types_) {
      return InvalidArgument("iterator '", name.name, "' exists with other component types than this node's");
    }
    handle->device = ctx.device()->name();
    handle->container = name.container;
    handle->name = name.name;
    handle->type_name = "tensorflow::data::IteratorResource";
    handle->resource = iterator;
    return iterator;
  }

 private:
  std::vector<DType> types_;
  std::vector<PartialShape> shapes_;
};

class IteratorKernel : public Kernel {
 public:
  explicit IteratorKernel(KernelInit& init) : source_(init) {}
  Status Compute(KernelContext& ctx) override {
    ResourceHandle handle;
    MR_RETURN_IF_ERROR(source_.Find(ctx, &handle).status());
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(handle)));
    return absl::OkStatus();
  }

 private:
  IteratorSource source_;
};

// Creates its dataset by calling a graph function when it first runs.
class OneShotIteratorKernel : public AsyncKernel {
 public:
  explicit OneShotIteratorKernel(KernelInit& init) : source_(init) { init.Attr("dataset_factory", &factory_); }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    ResourceHandle handle;
    StatusOr<RefPtr<IteratorResource>> iterator = source_.Find(ctx, &handle);
    if (!iterator.ok()) return done(iterator.status());
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(handle)));
    if ((*iterator)->started()) return done(absl::OkStatus());
    if (ctx.step().functions == nullptr) {
      return done(NotFound("the graph has no function '", factory_.name(), "'"));
    }
    StatusOr<std::shared_ptr<CallableFunction>> factory = ctx.step().functions->Instantiate(factory_);
    if (!factory.ok()) return done(factory.status());
    CallableFunction* const function = factory->get();
    function->Run(ctx.step(), /*site=*/0, {},
                  [iterator = *std::move(iterator), factory = *std::move(factory), done = std::move(done)](
                      StatusOr<std::vector<Tensor>> made) mutable { done(StartWith(*iterator, std::move(made))); });
  }

 private:
  static Status StartWith(IteratorResource& iterator, StatusOr<std::vector<Tensor>> made) {
    if (!made.ok()) return made.status();
    if (made->size() != 1) return InvalidArgument("dataset_factory must return a single dataset");
    MR_ASSIGN_OR_RETURN(const DatasetValue* dataset, DatasetIn((*made)[0], "what dataset_factory returns"));
    // Two steps may get here concurrently; the first iteration is kept.
    return iterator.started() ? absl::OkStatus() : iterator.Start(ShareRef(dataset));
  }

  IteratorSource source_;
  pb::NameAttrList factory_;
};

class MakeIteratorKernel : public Kernel {
 public:
  explicit MakeIteratorKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetValue* dataset, DatasetIn(ctx.input(0), "dataset"));
    MR_ASSIGN_OR_RETURN(RefPtr<IteratorResource> iterator, ctx.resource<IteratorResource>(1));
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    return ctx.resources()->Update(origin, [&] { return iterator->Start(ShareRef(dataset)); });
  }
};

class IteratorGetNextKernel : public AsyncKernel {
 public:
  explicit IteratorGetNextKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<IteratorResource>> iterator = ctx.resource<IteratorResource>(0);
    if (!iterator.ok()) return done(iterator.status());
    const StatusOr<std::shared_ptr<DatasetWalk>> walk = (*iterator)->walk();
    if (!walk.ok()) return done(walk.status());
    const std::string resource = absl::StrCat("iterator '", (*iterator)->name(), "'");
    auto deliver = [this, &ctx, iterator = *std::move(iterator)](DatasetWalk::Answer& answer) -> Status {
      if (!answer.ok()) return answer.status();
      if (*answer != nullptr) MR_RETURN_IF_ERROR(iterator->Check(**answer));
      return SetOutputs(ctx, answer->get());
    };
    ElementRequest::Start(ctx, **walk, {.resource = resource, .deliver = std::move(deliver)}, std::move(done));
  }

 protected:
  // `element` is null at the end.
  virtual Status SetOutputs(KernelContext& ctx, std::vector<Tensor>* element) const {
    if (element == nullptr) return absl::OutOfRangeError("End of sequence");
    return SetElementOutputs(ctx, std::move(*element));
  }
};

class IteratorGetNextAsOptionalKernel : public IteratorGetNextKernel {
 public:
  using IteratorGetNextKernel::IteratorGetNextKernel;

 protected:
  Status SetOutputs(KernelContext& ctx, std::vector<Tensor>* element) const override {
    Tensor optional(DType::kVariant, Shape());
    optional.scalar<Variant>() =
        Variant(element == nullptr ? MakeRef<OptionalValue>() : MakeRef<OptionalValue>(std::move(*element)));
    ctx.SetOutput(0, std::move(optional));
    return absl::OkStatus();
  }
};

// A handle as a string that can be fed: its serialized message.
class IteratorToStringHandleKernel : public Kernel {
 public:
  explicit IteratorToStringHandleKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(ctx.resource<IteratorResource>(0).status());
    const ResourceHandle& handle = ctx.input(0).scalar<ResourceHandle>();
    pb::ResourceHandleProto proto;
    proto.set_device(handle.device);
    proto.set_container(handle.container);
    proto.set_name(handle.name);
    proto.set_maybe_type_name(handle.type_name);
    ctx.SetOutput(0, Tensor::Scalar(proto.SerializeAsString()));
    return absl::OkStatus();
  }
};

class IteratorFromStringHandleKernel : public Kernel {
 public:
  explicit IteratorFromStringHandleKernel(KernelInit& init) { init.Attr("output_types", &types_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& text = ctx.input(0);
    if (text.num_elements() != 1) return InvalidArgument("string_handle must be a scalar");
    pb::ResourceHandleProto proto;
    if (!proto.ParseFromString(text.scalar<std::string>())) {
      return InvalidArgument("Could not parse string_handle as a valid ResourceHandle");
    }
    MR_ASSIGN_OR_RETURN(RefPtr<IteratorResource> iterator,
                        ctx.resources()->Lookup<IteratorResource>(proto.container(), proto.name()));
    if (!types_.empty() && types_ != iterator->types()) {
      return InvalidArgument("iterator '", iterator->name(),
                             "' has other component types than the node's output_types");
    }
    ResourceHandle handle;
    handle.device = proto.device();
    handle.container = proto.container();
    handle.name = proto.name();
    handle.type_name = proto.maybe_type_name();
    handle.resource = iterator;
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(handle)));
    return absl::OkStatus();
  }

 private:
  std::vector<DType> types_;
};

MILLRACE_OP(Iterator)
    .Output("handle: resource")
    .Attr("shared_name: string")
    .Attr("container: string")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A handle of an iterator, which MakeIterator initializes.");

MILLRACE_OP(IteratorV2)
    .Output("handle: resource")
    .Attr("shared_name: string")
    .Attr("container: string")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A handle of an iterator, which MakeIterator initializes.");

MILLRACE_OP(OneShotIterator)
    .Output("handle: resource")
    .Attr("dataset_factory: func")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A handle of an iterator over the dataset that a function returns.");

MILLRACE_OP(MakeIterator)
    .Input("dataset: variant")
    .Input("iterator: resource")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Initializes an iterator at the beginning of a dataset.");

MILLRACE_OP(IteratorGetNext)
    .Input("iterator: resource")
    .Output("components: output_types")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ComponentShapes)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("The next element of an iterator; OUT_OF_RANGE at the end.");

MILLRACE_OP(IteratorGetNextSync)
    .Input("iterator: resource")
    .Output("components: output_types")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ComponentShapes)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("The next element of an iterator; OUT_OF_RANGE at the end.");

MILLRACE_OP(IteratorGetNextAsOptional)
    .Input("iterator: resource")
    .Output("optional: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("The next element of an iterator as an optional, which is empty at the end.");

MILLRACE_OP(IteratorToStringHandle)
    .Input("resource_handle: resource")
    .Output("string_handle: string")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Converts an iterator handle to a string that can be fed.");

MILLRACE_OP(IteratorFromStringHandle)
    .Input("string_handle: string")
    .Output("resource_handle: resource")
    .Attr("output_types: list(type) >= 0 = []")
    .Attr("output_shapes: list(shape) >= 0 = []")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The iterator that a string names.");

MILLRACE_OP(IteratorFromStringHandleV2)
    .Input("string_handle: string")
    .Output("resource_handle: resource")
    .Attr("output_types: list(type) >= 0 = []")
    .Attr("output_shapes: list(shape) >= 0 = []")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The iterator that a string names.");

MILLRACE_KERNEL(Iterator, kCpu, IteratorKernel);
MILLRACE_KERNEL(IteratorV2, kCpu, IteratorKernel);
MILLRACE_KERNEL(OneShotIterator, kCpu, OneShotIteratorKernel);
MILLRACE_KERNEL(MakeIterator, kCpu, MakeIteratorKernel);
MILLRACE_KERNEL(IteratorGetNext, kCpu, IteratorGetNextKernel);
MILLRACE_KERNEL(IteratorGetNextSync, kCpu, IteratorGetNextKernel);
MILLRACE_KERNEL(IteratorGetNextAsOptional, kCpu, IteratorGetNextAsOptionalKernel);
MILLRACE_KERNEL(IteratorToStringHandle, kCpu, IteratorToStringHandleKernel);
MILLRACE_KERNEL(IteratorFromStringHandle, kCpu, IteratorFromStringHandleKernel);
MILLRACE_KERNEL(IteratorFromStringHandleV2, kCpu, IteratorFromStringHandleKernel);

}  // namespace
}  // namespace millrace
