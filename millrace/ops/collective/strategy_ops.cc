// _CollectiveReduceShards and _CollectiveBroadcast: what a strategy's training step exchanges with the other workers.
#include <algorithm>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/collective/packed_operation.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Output i has the shape of value i, and of all other values that are added to it.
Status ReducedShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(i));
  return absl::OkStatus();
}

MILLRACE_OP(_CollectiveReduceShards)
    .Summary("Sums tensors of logical shards over all workers, in one exchange and in the order of the shard tree.")
    .Input("values: N * T")
    .Output("sums: M * T")
    .Attr("N: int >= 1")
    .Attr("M: int >= 1")
    .Attr("T: {half, bfloat16, float, double, int32, int64}")
    .Attr("key: string")
    .Attr("first: list(int)")
    .Attr("last: list(int)")
    .Attr("owners: list(int)")
    .Attr("algorithm: string = 'auto'")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .NotDifferentiable()
    .Shape(ReducedShape);

// Values k * M to (k + 1) * M - 1 are this worker's sums of the shards first[k] to last[k] - 1.
class ReduceShardsKernel : public PackedCollectiveKernel {
 public:
  explicit ReduceShardsKernel(KernelInit& init) : PackedCollectiveKernel(init) {
    std::vector<int64_t> owners;
    init.Attr("first", &first_);
    init.Attr("last", &last_);
    init.Attr("owners", &owners);
    init.Attr("algorithm", &algorithm_);
    owners_.assign(owners.begin(), owners.end());
    if (first_.empty() || first_.size() != last_.size()) {
      init.Fail(InvalidArgument("`first` and `last` have ", first_.size(), " and ", last_.size(), " elements"));
    }
  }

 protected:
  int num_parts() const override { return static_cast<int>(first_.size()); }
  bool in_place() const override { return owners_.empty(); }
  void Start(WorkerExchange& exchange, const Packed& packed, WorkerExchange::Done done) override {
    ShardReduction reduction{.key = key(),
                             .result = {packed.result, packed.count, packed.dtype, packed.owner},
                             .owners = owners_,
                             .algorithm = algorithm_};
    for (size_t i = 0; i < packed.parts.size(); ++i) {
      reduction.sums.push_back({static_cast<int>(first_[i]), static_cast<int>(last_[i]), packed.parts[i]});
    }
    exchange.Reduce(std::move(reduction), std::move(done));
  }

 private:
  std::vector<int64_t> first_, last_;
  std::vector<int> owners_;
  std::string algorithm_;
};

MILLRACE_OP(_CollectiveBroadcast)
    .Summary("Gives all workers the tensors of one, in one exchange.")
    .Input("values: N * T")
    .Output("received: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {half, bfloat16, float, double, int8, uint8, int16, int32, int64, bool, complex64, complex128}")
    .Attr("key: string")
    .Attr("root: int = 0")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .NotDifferentiable()
    .Shape(ReducedShape);

class BroadcastVariablesKernel : public PackedCollectiveKernel {
 public:
  explicit BroadcastVariablesKernel(KernelInit& init) : PackedCollectiveKernel(init) { init.Attr("root", &root_); }

 protected:
  int num_parts() const override { return 1; }
  bool in_place() const override { return true; }
  void Start(WorkerExchange& exchange, const Packed& packed, WorkerExchange::Done done) override {
    exchange.Broadcast(key(), {packed.result, packed.count, packed.dtype, packed.owner}, static_cast<int>(root_),
                       std::move(done));
  }

 private:
  int64_t root_ = 0;
};

MILLRACE_KERNEL(_CollectiveReduceShards, kCpu, ReduceShardsKernel);
MILLRACE_KERNEL(_CollectiveBroadcast, kCpu, BroadcastVariablesKernel);

}  // namespace
}  // namespace millrace
