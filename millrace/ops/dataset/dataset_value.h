// Datasets as variant values of a graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/data/dataset.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/function_runner.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// The step context in which the functions of a pipeline run. It outlives the step that created it, and is cancelled
// when the iteration is abandoned.
struct PipelineContext {
  explicit PipelineContext(const StepContext& maker)
      : step(maker.Detached(&cancellation, &resources)),
        functions(step.functions != nullptr ? step.functions->weak_from_this().lock() : nullptr) {}

  CancellationManager cancellation;
  StepResources resources;
  const StepContext step;
  const std::shared_ptr<FunctionRunner> functions;  // keeps step.functions alive
};
using PipelineContexts = std::vector<std::shared_ptr<PipelineContext>>;

// The value of a dataset variant.
class DatasetValue : public VariantValue {
 public:
  DatasetValue(Dataset dataset, PipelineContexts contexts)
      : dataset(std::move(dataset)), contexts(std::move(contexts)) {}
  absl::string_view TypeName() const override { return "tensorflow::DatasetVariantWrapper"; }
  std::string DebugString() const override { return "dataset"; }

  const Dataset dataset;
  // The contexts of all functions in the pipeline.
  const PipelineContexts contexts;
};

// The dataset in a variant. INVALID_ARGUMENT, naming the value, if it is something else.
StatusOr<const DatasetValue*> DatasetIn(const Tensor& tensor, absl::string_view what);

// A dataset whose passes are made from passes over `input`: `start` gets the pass's iterator over it.
Dataset FromPass(Dataset input, std::function<Generator(std::shared_ptr<DatasetIterator>)> start);

// An op whose only output is a dataset.
class DatasetKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) final;

 protected:
  // Reads and validates the inputs. The caller keeps the contexts of input datasets; those of this op's functions are
  // added to `contexts`.
  virtual StatusOr<Dataset> Make(KernelContext& ctx, PipelineContexts* contexts) = 0;

  static StatusOr<Dataset> Input(KernelContext& ctx, int i);
  // A scalar input; `name` is its name in the schema.
  template <typename T>
  static StatusOr<T> Scalar(KernelContext& ctx, int i, absl::string_view name) {
    const Tensor& t = ctx.input(i);
    if (t.num_elements() != 1) {
      return InvalidArgument(name, " must be a scalar, not of shape ", t.shape().ToString());
    }
    return t.scalar<T>();
  }
  // The same, at least `least`.
  static StatusOr<int64_t> Count(KernelContext& ctx, int i, absl::string_view name, int64_t least);
};

}  // namespace millrace
