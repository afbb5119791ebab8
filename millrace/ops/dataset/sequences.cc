// Datasets whose elements depend on the ones before them, are split anew or chosen: Unbatch, TakeWhile, Scan, Window
// and DirectedInterleave.
#include "millrace/data/window_pass.h"
#include "millrace/ops/dataset/captured_function.h"

namespace millrace {
namespace {

class UnbatchDatasetKernel : public DatasetKernel {
 public:
  explicit UnbatchDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    return input.Unbatch();
  }
};

class TakeWhileDatasetKernel : public DatasetKernel {
 public:
  explicit TakeWhileDatasetKernel(KernelInit& init) { init.Attr("predicate", &predicate_); }
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const auto predicate, CapturedFunction::Make(ctx, predicate_, 1, ctx.num_inputs() - 1, parts));
    return FromPass(input, [predicate](std::shared_ptr<DatasetIterator> pass) -> Generator {
      return [predicate, pass, ended = false](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
        if (ended) return false;
        MR_ASSIGN_OR_RETURN(const bool more, pass->Next(element));
        if (!more) return false;
        MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, predicate->Call(*element));
        if (result.size() != 1 || result[0].dtype() != DType::kBool || result[0].num_elements() != 1) {
          return InvalidArgument("TakeWhile predicate `f` must return a scalar bool.");
        }
        ended = !result[0].scalar<bool>();
        return !ended;
      };
    });
  }

 private:
  pb::NameAttrList predicate_;
};

class ScanDatasetKernel : public DatasetKernel {
 public:
  explicit ScanDatasetKernel(KernelInit& init) {
    init.Attr("f", &function_);
    init.Attr("Tstate", &state_types_);
  }
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    const auto states = static_cast<int>(state_types_.size());
    std::vector<Tensor> first;
    for (int i = 1; i <= states; ++i) first.push_back(ctx.input(i));
    MR_ASSIGN_OR_RETURN(const auto function,
                        CapturedFunction::Make(ctx, function_, 1 + states, ctx.num_inputs() - 1 - states, parts));
    return FromPass(input, [function, first](std::shared_ptr<DatasetIterator> pass) -> Generator {
      return [function, pass, state = first](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
        MR_ASSIGN_OR_RETURN(const bool more, pass->Next(element));
        if (!more) return false;
        std::vector<Tensor> args = state;
        args.insert(args.end(), element->begin(), element->end());
        MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, function->Call(std::move(args)));
        if (result.size() < state.size()) {
          return InvalidArgument("`f` must return ", state.size(), " states, not ", result.size(), " tensors");
        }
        for (size_t i = 0; i < state.size(); ++i) {
          if (result[i].dtype() != state[i].dtype()) {
            return InvalidArgument("`f` must return the state ", i, " as ", DTypeName(state[i].dtype()), ", not as ",
                                   DTypeName(result[i].dtype()));
          }
        }
        element->assign(result.begin() + static_cast<int64_t>(state.size()), result.end());
        std::copy_n(result.begin(), state.size(), state.begin());
        return true;
      };
    });
  }

 private:
  pb::NameAttrList function_;
  std::vector<DType> state_types_;
};

// A component of a window.
Tensor DatasetOfTensors(std::vector<Tensor> tensors) {
  Dataset dataset = Dataset::FromGenerator([tensors = std::move(tensors)](uint64_t) -> Generator {
    return [tensors, next = size_t{0}](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      if (next == tensors.size()) return false;
      *element = {tensors[next++]};
      return true;
    };
  });
  Tensor variant(DType::kVariant, Shape());
  variant.scalar<Variant>() = Variant(MakeRef<DatasetValue>(std::move(dataset), PipelineParts()));
  return variant;
}

// Each component of an element is a dataset of that component's tensors in the window.
StatusOr<bool> NextWindow(WindowPass& pass, std::vector<Tensor>* element) {
  std::vector<std::vector<Tensor>> window;
  MR_ASSIGN_OR_RETURN(const bool more, pass.Next(&window));
  if (!more) return false;
  element->clear();
  for (size_t c = 0; c < window[0].size(); ++c) {
    std::vector<Tensor> tensors;
    for (const std::vector<Tensor>& one : window) tensors.push_back(one[c]);
    element->push_back(DatasetOfTensors(std::move(tensors)));
  }
  return true;
}

class WindowDatasetKernel : public DatasetKernel {
 public:
  explicit WindowDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    WindowOptions options;
    MR_ASSIGN_OR_RETURN(options.size, Positive(ctx, 1, "size"));
    MR_ASSIGN_OR_RETURN(options.shift, Positive(ctx, 2, "shift"));
    MR_ASSIGN_OR_RETURN(options.stride, Positive(ctx, 3, "stride"));
    MR_ASSIGN_OR_RETURN(options.drop_remainder, Scalar<bool>(ctx, 4, "drop_remainder"));
    return FromPass(input, [options](std::shared_ptr<DatasetIterator> pass) -> Generator {
      auto windows = std::make_shared<WindowPass>(
          [pass = std::move(pass)](std::vector<Tensor>* element) { return pass->Next(element); }, options);
      return [windows](std::vector<Tensor>* element) { return NextWindow(*windows, element); };
    });
  }

 private:
  static StatusOr<int64_t> Positive(KernelContext& ctx, int i, absl::string_view name) {
    MR_ASSIGN_OR_RETURN(const int64_t value, Scalar<int64_t>(ctx, i, name));
    // Products of two of them must not overflow.
    if (value <= 0) return InvalidArgument("Window ", name, " must be greater than zero.");
    return std::min(value, int64_t{1} << 31);
  }
};

// Takes the next element of the dataset that the selector names.
class DirectedInterleaveDatasetKernel : public DatasetKernel {
 public:
  explicit DirectedInterleaveDatasetKernel(KernelInit& init) {
    stop_on_empty_ = init.node().AttrOr<bool>("stop_on_empty_dataset", false);
  }
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset selector, Input(ctx, 0));
    std::vector<Dataset> inputs;
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Dataset input, Input(ctx, i));
      inputs.push_back(std::move(input));
    }
    return FromPass(selector, [inputs, stop = stop_on_empty_](std::shared_ptr<DatasetIterator> pass) -> Generator {
      auto passes = std::make_shared<std::vector<std::unique_ptr<DatasetIterator>>>(inputs.size());
      return [inputs, stop, pass, passes, left = inputs.size(),
              ended = std::vector<bool>(inputs.size())](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
        while (left > 0) {
          std::vector<Tensor> choice;
          MR_ASSIGN_OR_RETURN(const bool more, pass->Next(&choice));
          if (!more) return false;
          if (choice.size() != 1 || choice[0].dtype() != DType::kInt64 || choice[0].num_elements() != 1) {
            return InvalidArgument("the selector must give scalars of int64");
          }
          const int64_t i = choice[0].scalar<int64_t>();
          if (i < 0 || i >= static_cast<int64_t>(inputs.size())) {
            return InvalidArgument("Selector index out of range: ", i, " >= ", inputs.size());
          }
          if (ended[i]) continue;
          if ((*passes)[i] == nullptr) {
            MR_ASSIGN_OR_RETURN((*passes)[i], inputs[i].MakeIterator());
          }
          MR_ASSIGN_OR_RETURN(const bool got, (*passes)[i]->Next(element));
          if (got) return true;
          if (stop) return false;
          ended[i] = true;
          --left;
        }
        return false;
      };
    });
  }

 private:
  bool stop_on_empty_ = false;
};

MILLRACE_OP(DirectedInterleaveDataset)
    .Input("selector_input_dataset: variant")
    .Input("data_input_datasets: N * variant")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("N: int >= 1")
    .Attr("stop_on_empty_dataset: bool = false")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Elements of several datasets in the order that another one says.");
MILLRACE_KERNEL(DirectedInterleaveDataset, kCpu, DirectedInterleaveDatasetKernel);

MILLRACE_OP(UnbatchDataset)
    .Input("input_dataset: variant")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The rows of each element as elements of their own.");
MILLRACE_OP(TakeWhileDataset)
    .Input("input_dataset: variant")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("predicate: func")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The elements before the first one for which a function returns false.");
MILLRACE_OP(ScanDataset)
    .Input("input_dataset: variant")
    .Input("initial_state: Tstate")
    .Input("other_arguments: Targuments")
    .Output("handle: variant")
    .Attr("f: func")
    .Attr("Tstate: list(type) >= 1")
    .Attr("Targuments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("preserve_cardinality: bool = false")
    .Attr("use_default_device: bool = true")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Maps elements with a function that passes a state from one call to the next.");
MILLRACE_OP(WindowDataset)
    .Input("input_dataset: variant")
    .Input("size: int64")
    .Input("shift: int64")
    .Input("stride: int64")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Windows over the elements, each a dataset.");
MILLRACE_KERNEL(UnbatchDataset, kCpu, UnbatchDatasetKernel);
MILLRACE_KERNEL(TakeWhileDataset, kCpu, TakeWhileDatasetKernel);
MILLRACE_KERNEL(ScanDataset, kCpu, ScanDatasetKernel);
MILLRACE_KERNEL(WindowDataset, kCpu, WindowDatasetKernel);

}  // namespace
}  // namespace millrace
