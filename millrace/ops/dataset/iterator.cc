// Iterator ops: handles, initialization, and getting elements.
#include <utility>

#include "millrace/ops/dataset/captured_function.h"
#include "millrace/ops/dataset/iterator_resource.h"
#include "millrace/proto/tensor.pb.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"

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
    return iterator.started() ? absl::OkStatus() : iterator.Start(*dataset);
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
    return ctx.resources()->Update(origin, [&] { return iterator->Start(*dataset); });
  }
};

// A pending IteratorGetNext: ends with the answer or with the cancellation of the step, whichever is first.
class GetNextRequest : public DatasetWalk::Request, public std::enable_shared_from_this<GetNextRequest> {
 public:
  GetNextRequest(KernelContext& ctx, RefPtr<IteratorResource> iterator, Kernel::Done done)
      : ctx_(ctx), iterator_(std::move(iterator)), done_(std::move(done)) {}

  void Start(DatasetWalk& walk) {
    CancellationManager* const cancellation = ctx_.cancellation();
    if (cancellation != nullptr) {
      token_ = cancellation->NewToken();
      if (!cancellation->Register(token_, [self = shared_from_this()] { self->GiveUp(); })) {
        return done_(cancellation->status());
      }
    }
    walk.Next(shared_from_this());
    NoteWait();
  }

  bool Wanted() const override {
    MutexLock lock(&mu_);
    return !ended_;
  }

  bool Take(DatasetWalk::Answer& answer) override {
    if (!End()) return false;
    // The step is valid until `done` is called, and nothing else can end the request now.
    if (CancellationManager* const cancellation = ctx_.cancellation(); cancellation != nullptr) {
      if (cancellation->IsCancelled()) ctx_.HandOver();  // it may have to wait for callbacks
      cancellation->Deregister(token_);
    }
    done_(SetOutputs(answer));
    return true;
  }

 private:
  void GiveUp() {
    if (End()) done_(ctx_.cancellation()->status());
  }

  // Returns true for exactly one caller, which may end the request.
  bool End() {
    uint64_t wait;
    {
      MutexLock lock(&mu_);
      if (ended_) return false;
      ended_ = true;
      wait = std::exchange(wait_, 0);
    }
    if (wait != 0) ctx_.step().waits->End(wait);
    return true;
  }

  void NoteWait() {
    MutexLock lock(&mu_);
    if (ended_ || ctx_.step().waits == nullptr) return;
    const std::string resource = absl::StrCat("iterator '", iterator_->name(), "'");
    wait_ = ctx_.step().waits->Begin({.node = ctx_.node().name(),
                                      .what = absl::StrCat("the next element of ", resource),
                                      .step_id = ctx_.step().step_id,
                                      .kind = Wait::Kind::kElements,
                                      .resource = resource});
  }

  Status SetOutputs(DatasetWalk::Answer& answer) {
    if (!answer.ok()) return answer.status();
    if (*answer == nullptr) return absl::OutOfRangeError("End of sequence");
    std::vector<Tensor>& element = **answer;
    MR_RETURN_IF_ERROR(iterator_->Check(element));
    if (static_cast<int>(element.size()) != ctx_.num_outputs()) {
      return InvalidArgument("an element has ", element.size(), " components, the node ", ctx_.num_outputs(),
                             " outputs");
    }
    for (int i = 0; i < ctx_.num_outputs(); ++i) {
      if (element[i].dtype() != ctx_.output_type(i)) {
        return InvalidArgument("component ", i, " is ", element[i].dtype(), ", the node's output ",
                               ctx_.output_type(i));
      }
      ctx_.SetOutput(i, std::move(element[i]));
    }
    return absl::OkStatus();
  }

  KernelContext& ctx_;  // lives until done_ is called
  const RefPtr<IteratorResource> iterator_;
  Kernel::Done done_;
  CancellationManager::Token token_ = 0;
  mutable Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t wait_ ABSL_GUARDED_BY(mu_) = 0;
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
    std::make_shared<GetNextRequest>(ctx, *std::move(iterator), std::move(done))->Start(**walk);
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

Status ComponentShapes(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes, c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("output_shapes has ", shapes.size(), " entries for ", c.num_outputs(), " outputs");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return absl::OkStatus();
}

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
MILLRACE_KERNEL(IteratorToStringHandle, kCpu, IteratorToStringHandleKernel);
MILLRACE_KERNEL(IteratorFromStringHandle, kCpu, IteratorFromStringHandleKernel);
MILLRACE_KERNEL(IteratorFromStringHandleV2, kCpu, IteratorFromStringHandleKernel);

}  // namespace
}  // namespace millrace
