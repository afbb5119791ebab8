// Dataset sources: TensorDataset, TensorSliceDataset, RangeDataset, GeneratorDataset.
#include "millrace/ops/dataset/captured_function.h"
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

std::vector<Tensor> AllInputs(const KernelContext& ctx) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < ctx.num_inputs(); ++i) tensors.push_back(ctx.input(i));
  return tensors;
}

class TensorDatasetKernel : public DatasetKernel {
 public:
  explicit TensorDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override { return Dataset::FromElement(AllInputs(ctx)); }
};

class TensorSliceDatasetKernel : public DatasetKernel {
 public:
  explicit TensorSliceDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override { return Dataset::FromTensors(AllInputs(ctx)); }
};

class RangeDatasetKernel : public DatasetKernel {
 public:
  explicit RangeDatasetKernel(KernelInit& init) {
    init.Attr("output_types", &types_);
    if (init.status().ok() && types_.size() != 1) {
      init.Fail(InvalidArgument("a range has 1 component, but output_types has ", types_.size()));
    }
  }
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const int64_t start, Scalar<int64_t>(ctx, 0, "start"));
    MR_ASSIGN_OR_RETURN(const int64_t stop, Scalar<int64_t>(ctx, 1, "stop"));
    MR_ASSIGN_OR_RETURN(const int64_t step, Scalar<int64_t>(ctx, 2, "step"));
    if (step == 0) return InvalidArgument("step must be a non-zero integer.");
    return Dataset::Range(start, stop, step, types_[0]);
  }

 private:
  std::vector<DType> types_;
};

// One pass of a GeneratorDataset: init_func creates the state, next_func returns elements until OUT_OF_RANGE,
// finalize_func ends it.
class GeneratorWalk {
 public:
  using Function = std::shared_ptr<const CapturedFunction>;
  GeneratorWalk(Function init, Function next, Function finalize)
      : init_(std::move(init)), next_(std::move(next)), finalize_(std::move(finalize)) {}
  ~GeneratorWalk() { End().IgnoreError(); }

  StatusOr<bool> Next(std::vector<Tensor>* element) {
    if (ended_) return false;
    if (!begun_) {
      MR_ASSIGN_OR_RETURN(state_, init_->Call({}));
      begun_ = true;
    }
    StatusOr<std::vector<Tensor>> next = next_->Call(state_);
    if (absl::IsOutOfRange(next.status())) {
      MR_RETURN_IF_ERROR(End());
      return false;
    }
    if (!next.ok()) return next.status();
    *element = *std::move(next);
    return true;
  }

 private:
  Status End() {
    if (!begun_ || ended_) return absl::OkStatus();
    ended_ = true;
    return finalize_->Call(std::move(state_)).status();
  }

  const Function init_, next_, finalize_;
  std::vector<Tensor> state_;
  bool begun_ = false;
  bool ended_ = false;
};

class GeneratorDatasetKernel : public DatasetKernel {
 public:
  explicit GeneratorDatasetKernel(KernelInit& init) {
    const char* const names[] = {"init", "next", "finalize"};
    for (int i = 0; i < 3; ++i) {
      std::vector<DType> types;
      init.Attr(absl::StrCat(names[i], "_func"), &functions_[i]);
      init.Attr(absl::StrCat("T", names[i], "_func_args"), &types);
      counts_[i] = static_cast<int>(types.size());
    }
  }
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    GeneratorWalk::Function functions[3];
    int first = 0;
    for (int i = 0; i < 3; ++i) {
      MR_ASSIGN_OR_RETURN(functions[i], CapturedFunction::Make(ctx, functions_[i], first, counts_[i], parts));
      first += counts_[i];
    }
    return Dataset::FromGenerator(
        [init = functions[0], next = functions[1], finalize = functions[2]](uint64_t) -> Generator {
          auto walk = std::make_shared<GeneratorWalk>(init, next, finalize);
          return [walk](std::vector<Tensor>* element) { return walk->Next(element); };
        });
  }

 private:
  pb::NameAttrList functions_[3];
  int counts_[3];
};

MILLRACE_OP(TensorDataset)
    .Input("components: Toutput_types")
    .Output("handle: variant")
    .Attr("Toutput_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of one element that consists of all the tensors.");

MILLRACE_OP(TensorSliceDataset)
    .Input("components: Toutput_types")
    .Output("handle: variant")
    .Attr("Toutput_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("is_files: bool = false")
    .Attr("metadata: string = ''")
    .Attr("replicate_on_split: bool = false")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset whose element i is row i of each tensor.");

MILLRACE_OP(RangeDataset)
    .Input("start: int64")
    .Input("stop: int64")
    .Input("step: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Attr("replicate_on_split: bool = false")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the numbers start, start + step, ... before stop.");

MILLRACE_OP(GeneratorDataset)
    .Input("init_func_other_args: Tinit_func_args")
    .Input("next_func_other_args: Tnext_func_args")
    .Input("finalize_func_other_args: Tfinalize_func_args")
    .Output("handle: variant")
    .Attr("init_func: func")
    .Attr("next_func: func")
    .Attr("finalize_func: func")
    .Attr("Tinit_func_args: list(type) >= 0")
    .Attr("Tnext_func_args: list(type) >= 0")
    .Attr("Tfinalize_func_args: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the results of next_func, applied to the state from init_func until OUT_OF_RANGE.");

MILLRACE_KERNEL(TensorDataset, kCpu, TensorDatasetKernel);
MILLRACE_KERNEL(TensorSliceDataset, kCpu, TensorSliceDatasetKernel);
MILLRACE_KERNEL(RangeDataset, kCpu, RangeDatasetKernel);
MILLRACE_KERNEL(GeneratorDataset, kCpu, GeneratorDatasetKernel);

}  // namespace
}  // namespace millrace
