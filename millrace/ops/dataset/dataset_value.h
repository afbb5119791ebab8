// Datasets as values of a graph.
#pragma once

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

// The step in which the functions of one pipeline run: it goes on after the step that made it. Cancelled when the
// walk through the pipeline is given up.
struct PipelineContext {
  explicit PipelineContext(const StepContext& maker) : step(maker) {
    step.cancellation = &cancellation;
    step.step_resources = &resources;
    step.rendezvous = nullptr;
    if (step.functions != nullptr) functions = step.functions->weak_from_this().lock();
  }

  CancellationManager cancellation;
  StepResources resources;
  StepContext step;
  std::shared_ptr<FunctionRunner> functions;  // keeps step.functions alive
};
using PipelineContexts = std::vector<std::shared_ptr<PipelineContext>>;

// What a dataset variant holds.
class DatasetValue : public VariantValue {
 public:
  DatasetValue(Dataset dataset, PipelineContexts contexts)
      : dataset(std::move(dataset)), contexts(std::move(contexts)) {}
  absl::string_view TypeName() const override { return "tensorflow::DatasetVariantWrapper"; }
  std::string DebugString() const override { return "dataset"; }

  const Dataset dataset;
  // Of all functions in the pipeline.
  const PipelineContexts contexts;
};

// The dataset in a variant. INVALID_ARGUMENT names what it is otherwise.
StatusOr<const DatasetValue*> DatasetIn(const Tensor& tensor, absl::string_view what);

// An op whose only output is a dataset.
class DatasetKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) final;

 protected:
  // What inputs say is read here, and errors in them are told here; contexts of the inputs are kept by the
  // caller, those of functions of this op are added to `contexts`.
  virtual StatusOr<Dataset> Make(KernelContext& ctx, PipelineContexts* contexts) = 0;

  static StatusOr<Dataset> Input(KernelContext& ctx, int i);
  // A scalar input, by the name that the schema gives it.
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
