// Ops that make tensors of a whole dataset: ReduceDataset and DatasetToSingleElement.
#include <utility>

#include "millrace/ops/dataset/captured_function.h"
#include "millrace/ops/dataset/element_request.h"

namespace millrace {
namespace {

// Sets its outputs to the only element of a dataset that is made from the first input. A thread of the walk's own makes
// the element, since the dataset may wait, and cancelling the step abandons it.
class WholeDatasetKernel : public AsyncKernel {
 public:
  void ComputeAsync(KernelContext& ctx, Done done) final {
    StatusOr<std::shared_ptr<DatasetWalk>> walk = Begin(ctx);
    if (!walk.ok()) return done(walk.status());
    auto deliver = [&ctx](DatasetWalk::Answer& answer) -> Status {
      if (!answer.ok()) return answer.status();
      if (*answer == nullptr) return Internal("the dataset has no element");
      return SetElementOutputs(ctx, std::move(**answer));
    };
    DatasetWalk& started = **walk;
    auto abandon = [walk = *std::move(walk)] { walk->Cancel(); };
    ElementRequest::Start(
        ctx, started, {.resource = "a dataset", .deliver = std::move(deliver), .abandon = std::move(abandon)},
        std::move(done));
  }

 protected:
  // A pass that gives one element. Adds the contexts of the op's functions to `contexts`.
  virtual StatusOr<Dataset> Make(KernelContext& ctx, const Dataset& input, PipelineContexts* contexts) = 0;

 private:
  StatusOr<std::shared_ptr<DatasetWalk>> Begin(KernelContext& ctx) {
    MR_ASSIGN_OR_RETURN(const DatasetValue* input, DatasetIn(ctx.input(0), "the input"));
    PipelineContexts contexts = input->contexts;
    MR_ASSIGN_OR_RETURN(const Dataset dataset, Make(ctx, input->dataset, &contexts));
    MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator, dataset.MakeIterator());
    return std::make_shared<DatasetWalk>(std::move(iterator), std::move(contexts));
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
  StatusOr<Dataset> Make(KernelContext& ctx, const Dataset& input, PipelineContexts* contexts) override {
    std::vector<Tensor> first;
    for (int i = 1; i <= states_; ++i) first.push_back(ctx.input(i));
    MR_ASSIGN_OR_RETURN(const auto function, CapturedFunction::Make(ctx, function_, 1 + states_,
                                                                    ctx.num_inputs() - 1 - states_, contexts));
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
  StatusOr<Dataset> Make(KernelContext&, const Dataset& input, PipelineContexts*) override {
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
