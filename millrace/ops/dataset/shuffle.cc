// ShuffleDataset and its later versions, and ShuffleAndRepeatDataset.
#include <random>

#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

// Shuffles with seeds chosen at random, which a restored iterator replaces by those of its position.
Dataset ShuffleByChance(Dataset input, ShuffleOptions options, PipelineParts* parts) {
  auto seeds = std::make_shared<ChosenSeeds>();
  std::random_device random;
  seeds->seed = random();
  seeds->seed2 = random();
  parts->seeds.push_back(seeds);
  const int64_t cardinality = input.Cardinality();
  return Dataset::FromGenerator(
             [input = std::move(input), options, seeds = std::move(seeds)](uint64_t epoch) -> Generator {
               ShuffleOptions seeded = options;
               seeded.seed = seeds->seed;
               seeded.seed2 = seeds->seed2;
               StatusOr<std::unique_ptr<DatasetIterator>> made = input.Shuffle(seeded).MakeIterator(epoch);
               if (!made.ok()) {
                 return [status = made.status()](std::vector<Tensor>*) -> StatusOr<bool> { return status; };
               }
               return [shuffled = std::shared_ptr<DatasetIterator>(*std::move(made))](std::vector<Tensor>* element) {
                 return shuffled->Next(element);
               };
             },
             cardinality)
      // The input may wait for another thread.
      .Map([](std::vector<Tensor>*) { return absl::OkStatus(); }, /*waits=*/true);
}

// Inputs from 1 on: buffer_size, then optionally seed and seed2.
class ShuffleDatasetKernel : public DatasetKernel {
 public:
  explicit ShuffleDatasetKernel(KernelInit& init) {
    if (init.node().FindAttr("reshuffle_each_iteration") != nullptr) {
      init.Attr("reshuffle_each_iteration", &options_.reshuffle_each_iteration);
    }
    const std::string& op = init.node().op().name;
    has_seeds_ = op != "ShuffleDatasetV2";
    repeats_ = op == "ShuffleAndRepeatDataset";
  }

  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts* parts) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    ShuffleOptions options = options_;
    MR_ASSIGN_OR_RETURN(options.buffer_size, Count(ctx, 1, "buffer_size", kAll));
    if (options.buffer_size == 0) return InvalidArgument("buffer_size must be positive, or -1 for all elements");
    if (options.buffer_size == kAll) options.buffer_size = 0;
    if (has_seeds_) {
      MR_ASSIGN_OR_RETURN(const int64_t seed, Scalar<int64_t>(ctx, 2, "seed"));
      MR_ASSIGN_OR_RETURN(const int64_t seed2, Scalar<int64_t>(ctx, 3, "seed2"));
      options.seed = static_cast<uint64_t>(seed);
      options.seed2 = static_cast<uint64_t>(seed2);
    }
    // TensorFlow's rule: two zero seeds mean a non-deterministic order.
    const bool seeded = options.seed != 0 || options.seed2 != 0;
    const Dataset shuffled = seeded ? input.Shuffle(options) : ShuffleByChance(input, options, parts);
    if (!repeats_) return shuffled;
    MR_ASSIGN_OR_RETURN(const int64_t count, Scalar<int64_t>(ctx, 4, "count"));
    return shuffled.Repeat(count);
  }

 private:
  static constexpr int64_t kAll = -1;
  ShuffleOptions options_;
  bool has_seeds_ = true;
  bool repeats_ = false;
};

MILLRACE_OP(ShuffleDataset)
    .Input("input_dataset: variant")
    .Input("buffer_size: int64")
    .Input("seed: int64")
    .Input("seed2: int64")
    .Output("handle: variant")
    .Attr("reshuffle_each_iteration: bool = true")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Shuffles elements using a buffer.");

MILLRACE_OP(ShuffleDatasetV2)
    .Input("input_dataset: variant")
    .Input("buffer_size: int64")
    .Input("seed_generator: resource")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Shuffles with non-deterministic seeds.");

MILLRACE_OP(ShuffleDatasetV3)
    .Input("input_dataset: variant")
    .Input("buffer_size: int64")
    .Input("seed: int64")
    .Input("seed2: int64")
    .Input("seed_generator: resource")
    .Output("handle: variant")
    .Attr("reshuffle_each_iteration: bool = true")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Shuffles elements using a buffer.");

MILLRACE_OP(ShuffleAndRepeatDataset)
    .Input("input_dataset: variant")
    .Input("buffer_size: int64")
    .Input("seed: int64")
    .Input("seed2: int64")
    .Input("count: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("reshuffle_each_iteration: bool = true")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Shuffles and repeats count times.");

MILLRACE_KERNEL(ShuffleDataset, kCpu, ShuffleDatasetKernel);
MILLRACE_KERNEL(ShuffleDatasetV2, kCpu, ShuffleDatasetKernel);
MILLRACE_KERNEL(ShuffleDatasetV3, kCpu, ShuffleDatasetKernel);
MILLRACE_KERNEL(ShuffleAndRepeatDataset, kCpu, ShuffleDatasetKernel);

}  // namespace
}  // namespace millrace
