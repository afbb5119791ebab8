// Datasets as variant values of a graph.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/data/dataset.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/function_runner.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// The step context in which the functions of a pipeline run. It outlives the step that created it. Thread-safe.
class PipelineContext {
 public:
  // The context of one iteration, which ends with Cancel.
  struct Iteration {
    explicit Iteration(const StepContext& maker) : step(maker.Detached(&cancellation, &resources)) {}

    CancellationManager cancellation;
    StepResources resources;
    const StepContext step;
  };

  explicit PipelineContext(const StepContext& maker)
      : functions_(maker.functions != nullptr ? maker.functions->weak_from_this().lock() : nullptr),
        iteration_(std::make_shared<Iteration>(maker)) {}

  std::shared_ptr<const Iteration> iteration() const;
  // Ends the functions that are running, because their iteration is abandoned.
  void Cancel(const Status& why);
  // Prepares for another iteration over the same dataset, after Cancel.
  void Renew();

 private:
  const std::shared_ptr<FunctionRunner> functions_;  // keeps the iterations' step.functions alive
  mutable Mutex mu_;
  std::shared_ptr<Iteration> iteration_ ABSL_GUARDED_BY(mu_);
};

// Seeds that were chosen at random because the graph gives none. Part of the position of an iterator, so that one that
// is restored goes on in the same order. Thread-safe.
struct ChosenSeeds {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint64_t> seed2{0};
};

// What the ops of a pipeline share with its iterator, in the order in which they were made.
struct PipelineParts {
  std::vector<std::shared_ptr<PipelineContext>> contexts = {};
  std::vector<std::shared_ptr<ChosenSeeds>> seeds = {};

  void Add(const PipelineParts& other);
  // Those of all contexts.
  void Cancel(const Status& why) const;
  void Renew() const;
};

// The value of a dataset variant.
class DatasetValue : public VariantValue {
 public:
  DatasetValue(Dataset dataset, PipelineParts parts) : dataset(std::move(dataset)), parts(std::move(parts)) {}
  absl::string_view TypeName() const override { return "tensorflow::DatasetVariantWrapper"; }
  std::string DebugString() const override { return "dataset"; }

  const Dataset dataset;
  // Those of the whole pipeline.
  const PipelineParts parts;
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
  // Reads and validates the inputs. The caller keeps the parts of input datasets; those of this op are added to
  // `parts`.
  virtual StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) = 0;

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
