// Ops that make tensors of a whole dataset: ReduceDataset and DatasetToSingleElement.
#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/base/thread_pool.h"
#include "millrace/ops/dataset/captured_function.h"
#include "millrace/ops/dataset/element_request.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {
namespace {

// Sets its outputs to the only element of a dataset that is made from the first input. A thread of its own makes the
// element, since the dataset may wait; cancelling the step cancels the functions of the dataset, which ends it.
class WholeDatasetKernel : public AsyncKernel {
 public:
  void ComputeAsync(KernelContext& ctx, Done done) final {
    auto pass = std::make_unique<Pass>();
    if (const Status status = Begin(ctx, pass.get()); !status.ok()) return done(status);
    if (CancellationManager* const cancellation = ctx.cancellation(); cancellation != nullptr) {
      pass->token = cancellation->NewToken();
      if (!cancellation->Register(
              pass->token, [parts = pass->parts] { parts.Cancel(absl::CancelledError("the step was cancelled")); })) {
        return done(cancellation->status());
      }
    }
    // The closure owns its thread.
    auto thread = std::make_shared<ThreadPool>("dataset", 1);
    ThreadPool* const scheduler = thread.get();
    scheduler->Schedule([&ctx, thread = std::move(thread), pass = std::move(pass), done = std::move(done)]() mutable {
      const Status status = Finish(ctx, std::move(pass));
      done(status);
    });
  }

 protected:
  // A dataset of one element. Adds the parts of this op to `parts`.
  virtual StatusOr<Dataset> Make(KernelContext& ctx, const Dataset& input, PipelineParts* parts) = 0;

 private:
  struct Pass {
    PipelineParts parts;
    std::unique_ptr<DatasetIterator> iterator;
    CancellationManager::Token token = 0;
  };

  Status Begin(KernelContext& ctx, Pass* pass) {
    MR_ASSIGN_OR_RETURN(const DatasetValue* input, DatasetIn(ctx.input(0), "the input"));
    pass->parts = input->parts;
    MR_ASSIGN_OR_RETURN(const Dataset dataset, Make(ctx, input->dataset, &pass->parts));
    MR_ASSIGN_OR_RETURN(pass->iterator, dataset.MakeIterator());
    return absl::OkStatus();
  }

  // The pass is over, and what it holds of the step released, before the node is done.
  static Status Finish(KernelContext& ctx, std::unique_ptr<Pass> pass) {
    const uint64_t wait = NoteWait(ctx);
    std::vector<Tensor> element;
    const StatusOr<bool> any = CatchExceptions([&] { return pass->iterator->Next(&element); });
    if (wait != 0) ctx.step().waits->End(wait);
    if (ctx.cancellation() != nullptr) ctx.cancellation()->Deregister(pass->token);
    pass.reset();
    if (!any.ok()) return any.status();
    if (!*any) return Internal("the dataset has no element");
    return SetElementOutputs(ctx, std::move(element));
  }

  static uint64_t NoteWait(const KernelContext& ctx) {
    if (ctx.step().waits == nullptr) return 0;
    return ctx.step().waits->Begin({.node = ctx.node().name(),
                                    .what = "the elements of a dataset",
                                    .step_id = ctx.step().step_id,
                                    .kind = Wait::Kind::kElements,
                                    .resource = "a dataset"});
  }
};

class ReduceDatasetKernel : public WholeDatasetKernel {
 public:
  explicit ReduceDatasetKernel(KernelInit& init) {
    init.Attr("f", &function_);
    std::vector<DType> types;
    init.Attr("Tstate", &types);
    states_ = static_cast<int>(types.size());
  }

 protected:
  StatusOr<Dataset> Make(KernelContext& ctx, const Dataset& input, PipelineParts* parts) override {
    std::vector<Tensor> first;
    for (int i = 1; i <= states_; ++i) first.push_back(ctx.input(i));
    MR_ASSIGN_OR_RETURN(const auto function,
                        CapturedFunction::Make(ctx, function_, 1 + states_, ctx.num_inputs() - 1 - states_, parts));
    return FromPass(input, [function, first](std::shared_ptr<DatasetIterator> pass) -> Generator {
      return [function, pass, first](std::vector<Tensor>* state) -> StatusOr<bool> {
        *state = first;
        std::vector<Tensor> element;
        for (;;) {
          MR_ASSIGN_OR_RETURN(const bool more, pass->Next(&element));
          if (!more) return true;
          state->insert(state->end(), element.begin(), element.end());
          MR_ASSIGN_OR_RETURN(*state, function->Call(std::move(*state)));
        }
      };
    });
  }

 private:
  pb::NameAttrList function_;
  int states_ = 0;
};

class DatasetToSingleElementKernel : public WholeDatasetKernel {
 public:
  explicit DatasetToSingleElementKernel(KernelInit&) {}

 protected:
  StatusOr<Dataset> Make(KernelContext&, const Dataset& input, PipelineParts*) override {
    return FromPass(input, [](std::shared_ptr<DatasetIterator> pass) -> Generator {
      return [pass](std::vector<Tensor>* element) -> StatusOr<bool> {
        MR_ASSIGN_OR_RETURN(const bool any, pass->Next(element));
        if (!any) return InvalidArgument("Dataset was empty.");
        std::vector<Tensor> second;
        MR_ASSIGN_OR_RETURN(const bool more, pass->Next(&second));
        if (more) return InvalidArgument("Dataset had more than one element.");
        return true;
      };
    });
  }
};

MILLRACE_OP(ReduceDataset)
    .Summary("Reduces a dataset with a function of a state and an element.")
    .Input("input_dataset: variant")
    .Input("initial_state: Tstate")
    .Input("other_arguments: Targuments")
    .Output("components: output_types")
    .Attr("f: func")
    .Attr("Tstate: list(type) >= 1")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("use_inter_op_parallelism: bool = true")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ComponentShapes)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits);

MILLRACE_OP(DatasetToSingleElement)
    .Summary("The only element of a dataset.")
    .Input("dataset: variant")
    .Output("components: output_types")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ComponentShapes)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits);

MILLRACE_KERNEL(ReduceDataset, kCpu, ReduceDatasetKernel);
MILLRACE_KERNEL(DatasetToSingleElement, kCpu, DatasetToSingleElementKernel);

}  // namespace
}  // namespace millrace
