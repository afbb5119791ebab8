// Datasets that group elements by a key: GroupByWindow and GroupByReducer.
#include <deque>
#include <map>

#include "millrace/ops/dataset/captured_function.h"

namespace millrace {
namespace {

using Function = std::shared_ptr<const CapturedFunction>;

// The functions of a node by the order of their captured inputs, which follow the dataset; function x has the
// attributes x and Tx_other_arguments.
class NodeFunctions {
 public:
  NodeFunctions(KernelInit& init, const std::vector<std::string>& names) : functions_(names.size()) {
    for (size_t i = 0; i < names.size(); ++i) {
      init.Attr(names[i], &functions_[i]);
      std::vector<DType> types;
      init.Attr(absl::StrCat("T", names[i], "_other_arguments"), &types);
      captured_.push_back(static_cast<int>(types.size()));
    }
  }
  StatusOr<std::vector<Function>> Make(KernelContext& ctx, PipelineParts* parts) const {
    std::vector<Function> made;
    int first = 1;
    for (size_t i = 0; i < functions_.size(); ++i) {
      MR_ASSIGN_OR_RETURN(Function function, CapturedFunction::Make(ctx, functions_[i], first, captured_[i], parts));
      made.push_back(std::move(function));
      first += captured_[i];
    }
    return made;
  }

 private:
  std::vector<pb::NameAttrList> functions_;
  std::vector<int> captured_;
};

StatusOr<int64_t> CallForInt(const CapturedFunction& function, std::vector<Tensor> args, absl::string_view what) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, function.Call(std::move(args)));
  if (result.size() != 1 || result[0].dtype() != DType::kInt64 || result[0].num_elements() != 1) {
    return InvalidArgument("`", what, "` must return a scalar int64.");
  }
  return result[0].scalar<int64_t>();
}

// One pass: collects elements of each key until their window is full, and gives the elements of the dataset that
// reduce_func makes of it. At the end the windows that are not full follow, by key.
class WindowsByKey {
 public:
  WindowsByKey(std::shared_ptr<DatasetIterator> input, std::vector<Function> functions)
      : input_(std::move(input)), functions_(std::move(functions)) {}

  StatusOr<bool> Next(std::vector<Tensor>* element) {
    for (;;) {
      if (reduced_ != nullptr) {
        MR_ASSIGN_OR_RETURN(const bool more, reduced_->Next(element));
        if (more) return true;
        reduced_ = nullptr;
      }
      if (!ended_) {
        MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
        ended_ = !more;
        if (more) MR_RETURN_IF_ERROR(Add(std::move(*element)));
      } else if (groups_.empty()) {
        return false;
      } else {
        MR_RETURN_IF_ERROR(Reduce(groups_.begin()->first));
      }
    }
  }

 private:
  using Elements = std::vector<std::vector<Tensor>>;

  Status Add(std::vector<Tensor> element) {
    MR_ASSIGN_OR_RETURN(const int64_t key, CallForInt(*functions_[0], element, "key_func"));
    if (sizes_.count(key) == 0) {
      MR_ASSIGN_OR_RETURN(const int64_t size,
                          CallForInt(*functions_[2], {Tensor::Scalar<int64_t>(key)}, "window_size_func"));
      if (size <= 0) return InvalidArgument("Window size must be greater than zero, but got ", size, ".");
      sizes_[key] = size;
    }
    Elements& group = groups_[key];
    group.push_back(std::move(element));
    return static_cast<int64_t>(group.size()) == sizes_[key] ? Reduce(key) : absl::OkStatus();
  }

  Status Reduce(int64_t key) {
    auto elements = std::make_shared<const Elements>(std::move(groups_[key]));
    groups_.erase(key);
    const auto count = static_cast<int64_t>(elements->size());
    Dataset window = Dataset::FromGenerator(
        [elements](uint64_t) -> Generator {
          return [elements, next = size_t{0}](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
            if (next == elements->size()) return false;
            *element = (*elements)[next++];
            return true;
          };
        },
        count);
    Tensor variant(DType::kVariant, Shape());
    variant.scalar<Variant>() = Variant(MakeRef<DatasetValue>(std::move(window), PipelineParts()));
    MR_ASSIGN_OR_RETURN(result_, functions_[1]->Call({Tensor::Scalar<int64_t>(key), std::move(variant)}));
    if (result_.size() != 1) return InvalidArgument("`reduce_func` must return a single dataset.");
    MR_ASSIGN_OR_RETURN(const DatasetValue* value, DatasetIn(result_[0], "what `reduce_func` returns"));
    MR_ASSIGN_OR_RETURN(reduced_, value->dataset.MakeIterator());
    return absl::OkStatus();
  }

  const std::shared_ptr<DatasetIterator> input_;
  const std::vector<Function> functions_;  // key, reduce, window size
  std::map<int64_t, Elements> groups_;
  std::map<int64_t, int64_t> sizes_;
  std::vector<Tensor> result_;  // keeps the dataset of reduced_
  std::unique_ptr<DatasetIterator> reduced_;
  bool ended_ = false;
};

class GroupByWindowDatasetKernel : public DatasetKernel {
 public:
  explicit GroupByWindowDatasetKernel(KernelInit& init)
      : functions_(init, {"key_func", "reduce_func", "window_size_func"}) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const std::vector<Function> functions, functions_.Make(ctx, parts));
    return FromPass(input, [functions](std::shared_ptr<DatasetIterator> pass) -> Generator {
      auto windows = std::make_shared<WindowsByKey>(std::move(pass), functions);
      return [windows](std::vector<Tensor>* element) { return windows->Next(element); };
    });
  }

 private:
  const NodeFunctions functions_;
};

// One pass: the states of all keys after the whole input, by key, each as finalize_func gives it.
class StatesByKey {
 public:
  StatesByKey(std::shared_ptr<DatasetIterator> input, std::vector<Function> functions)
      : input_(std::move(input)), functions_(std::move(functions)) {}

  StatusOr<bool> Next(std::vector<Tensor>* element) {
    while (!ended_) {
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
      ended_ = !more;
      if (more) MR_RETURN_IF_ERROR(Add(std::move(*element)));
    }
    if (states_.empty()) return false;
    const auto first = states_.begin();
    MR_ASSIGN_OR_RETURN(*element, functions_[3]->Call(std::move(first->second)));
    states_.erase(first);
    return true;
  }

 private:
  Status Add(std::vector<Tensor> element) {
    MR_ASSIGN_OR_RETURN(const int64_t key, CallForInt(*functions_[0], element, "key_func"));
    auto state = states_.find(key);
    if (state == states_.end()) {
      MR_ASSIGN_OR_RETURN(std::vector<Tensor> initial, functions_[1]->Call({Tensor::Scalar<int64_t>(key)}));
      state = states_.emplace(key, std::move(initial)).first;
    }
    std::vector<Tensor> args = std::move(state->second);
    args.insert(args.end(), element.begin(), element.end());
    MR_ASSIGN_OR_RETURN(state->second, functions_[2]->Call(std::move(args)));
    return absl::OkStatus();
  }

  const std::shared_ptr<DatasetIterator> input_;
  const std::vector<Function> functions_;  // key, init, reduce, finalize
  std::map<int64_t, std::vector<Tensor>> states_;
  bool ended_ = false;
};

class GroupByReducerDatasetKernel : public DatasetKernel {
 public:
  explicit GroupByReducerDatasetKernel(KernelInit& init)
      : functions_(init, {"key_func", "init_func", "reduce_func", "finalize_func"}) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    MR_ASSIGN_OR_RETURN(const std::vector<Function> functions, functions_.Make(ctx, parts));
    return FromPass(input, [functions](std::shared_ptr<DatasetIterator> pass) -> Generator {
      auto states = std::make_shared<StatesByKey>(std::move(pass), functions);
      return [states](std::vector<Tensor>* element) { return states->Next(element); };
    });
  }

 private:
  const NodeFunctions functions_;
};

MILLRACE_OP(GroupByWindowDataset)
    .Summary("Groups elements by a key into windows and reduces each window to a dataset.")
    .Input("input_dataset: variant")
    .Input("key_func_other_arguments: Tkey_func_other_arguments")
    .Input("reduce_func_other_arguments: Treduce_func_other_arguments")
    .Input("window_size_func_other_arguments: Twindow_size_func_other_arguments")
    .Output("handle: variant")
    .Attr("key_func: func")
    .Attr("reduce_func: func")
    .Attr("window_size_func: func")
    .Attr("Tkey_func_other_arguments: list(type) >= 0")
    .Attr("Treduce_func_other_arguments: list(type) >= 0")
    .Attr("Twindow_size_func_other_arguments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable();

MILLRACE_OP(GroupByReducerDataset)
    .Summary("Groups all elements by a key and reduces each group to one element.")
    .Input("input_dataset: variant")
    .Input("key_func_other_arguments: Tkey_func_other_arguments")
    .Input("init_func_other_arguments: Tinit_func_other_arguments")
    .Input("reduce_func_other_arguments: Treduce_func_other_arguments")
    .Input("finalize_func_other_arguments: Tfinalize_func_other_arguments")
    .Output("handle: variant")
    .Attr("key_func: func")
    .Attr("init_func: func")
    .Attr("reduce_func: func")
    .Attr("finalize_func: func")
    .Attr("Tkey_func_other_arguments: list(type) >= 0")
    .Attr("Tinit_func_other_arguments: list(type) >= 0")
    .Attr("Treduce_func_other_arguments: list(type) >= 0")
    .Attr("Tfinalize_func_other_arguments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable();

MILLRACE_OP(ExperimentalGroupByReducerDataset)
    .Summary("Groups all elements by a key and reduces each group to one element.")
    .Input("input_dataset: variant")
    .Input("key_func_other_arguments: Tkey_func_other_arguments")
    .Input("init_func_other_arguments: Tinit_func_other_arguments")
    .Input("reduce_func_other_arguments: Treduce_func_other_arguments")
    .Input("finalize_func_other_arguments: Tfinalize_func_other_arguments")
    .Output("handle: variant")
    .Attr("key_func: func")
    .Attr("init_func: func")
    .Attr("reduce_func: func")
    .Attr("finalize_func: func")
    .Attr("Tkey_func_other_arguments: list(type) >= 0")
    .Attr("Tinit_func_other_arguments: list(type) >= 0")
    .Attr("Treduce_func_other_arguments: list(type) >= 0")
    .Attr("Tfinalize_func_other_arguments: list(type) >= 0")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable();

MILLRACE_KERNEL(GroupByWindowDataset, kCpu, GroupByWindowDatasetKernel);
MILLRACE_KERNEL(GroupByReducerDataset, kCpu, GroupByReducerDatasetKernel);
MILLRACE_KERNEL(ExperimentalGroupByReducerDataset, kCpu, GroupByReducerDatasetKernel);

}  // namespace
}  // namespace millrace
