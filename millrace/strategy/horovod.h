// Data-parallel training with Horovod's verbs: every process runs the same program on its own data, and gradients are
// averaged over all of them.
//
//   MR_RETURN_IF_ERROR(hvd::Init());
//   ...
//   hvd::DistributedOptimizer optimizer(std::make_unique<optimizers::Adam>(optimizers::AdamOptions{
//       .learning_rate = 0.001 * hvd::Size()}));
//   Operation train = optimizer.Minimize(scope, loss, {.global_step = GlobalStep(scope)});
//   auto hook = std::make_shared<hvd::BroadcastGlobalVariablesHook>();   // all begin with the values of rank 0
//   ...
//   return hvd::Shutdown();
//
// Start it with `millrace launch --ps 0 --workers 4 -- ./program` or with `mpirun -np 4 ./program`; alone it is a
// training of one process. docs/from-horovod.md has Horovod's names beside these.
//
// Tensors are known by name, and each operation is carried out when all ranks have submitted one of that name; the
// order may differ between ranks. Small tensors that are ready together travel together.
//
// Errors. Before Init, operations get FAILED_PRECONDITION. Ranks that differ in the operation, type or shape of a
// tensor get INVALID_ARGUMENT, on all ranks, with two of them and what each has. If a rank dies, the operations of the
// others get UNAVAILABLE naming it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/api/optimizer.h"
#include "millrace/base/status.h"
#include "millrace/collective/reduction_kind.h"
#include "millrace/strategy/worker_group.h"
#include "millrace/tensor/tensor.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace::hvd {

// ---- The process

struct InitOptions {
  // What carries the tensors: "lane" (shared memory, Unix sockets and TCP, as between all Millrace tasks), "mpi"
  // (libmpi.so, opened at run time; under mpirun only), or "auto": the lane, except between hosts that mpirun has
  // chosen, where the lane would need certificates.
  std::string carrier = "auto";
  // Small tensors that are ready together travel in one buffer of up to this size; 0: each by itself.
  size_t fusion_bytes = size_t{64} << 20;
  // How long a rank waits before it asks the others again if none of what it has submitted was ready on all ranks.
  absl::Duration cycle_time = absl::Milliseconds(1);
  // A log line names the ranks that have not submitted a tensor for this time, and again after each such time.
  absl::Duration stall_warning = absl::Seconds(10);
  // A file for a Chrome trace of the operations of rank 0. If empty, the environment variable HOROVOD_TIMELINE.
  std::string timeline = {};
  // Of the lane: the server of this task, and how long the others may take to start.
  WorkerGroupOptions workers = {};
};

// Who the other ranks are comes from TF_CONFIG if it is set, as `millrace launch` does; otherwise from mpirun, if it
// has started this process; otherwise there are none. FAILED_PRECONDITION if it was called before.
Status Init(InitOptions options = {});
// After the last operation, on all ranks: waits for all of them. Init may be called afterwards, except under mpirun.
Status Shutdown();
bool IsInitialized();

// -1 before Init.
int Rank();
int Size();
// Among the ranks of this host.
int LocalRank();
int LocalSize();

// ---- Tensors

using Reduction = collective::Reduction;
inline constexpr Reduction kAverage = Reduction::kMean, kSum = Reduction::kSum, kMin = Reduction::kMin,
                           kMax = Reduction::kMax, kProduct = Reduction::kProduct;

// How float and double tensors travel. kFp16 halves (quarters) the bytes; the sum is then rounded to 11 bits at each
// addition, and values beyond 65504 become infinite.
enum class Compression { kNone, kFp16 };

struct AllreduceOptions {
  // The same on all ranks. Without one, "allreduce.1", "allreduce.2" and so on: the ranks then need the same order.
  std::string name = {};
  Reduction op = kAverage;
  Compression compression = Compression::kNone;
};

// Each waits for the result.
StatusOr<Tensor> Allreduce(const Tensor& tensor, const AllreduceOptions& options = {});
// The tensors of all ranks, joined along the first dimension, in which they may differ.
StatusOr<Tensor> Allgather(const Tensor& tensor, const std::string& name = "");
// The tensor of rank `root`; that of the others gives the type and the shape.
StatusOr<Tensor> Broadcast(const Tensor& tensor, int root_rank, const std::string& name = "");
// Returns when all ranks have called it.
Status Barrier();

// For a rank that has run out of data: until all ranks have called it, the operations of the others go on, and this
// rank contributes zeros to sums and averages (which, as in Horovod, are still divided by Size()), and no rows to
// allgathers. Returns
// the rank that called it last. Other operations of this rank get FAILED_PRECONDITION meanwhile.
StatusOr<int> Join();

// An operation under way. Dropping it does not end the operation.
class Handle {
 public:
  bool IsDone() const;
  // May be called repeatedly.
  StatusOr<Tensor> Wait() const;

  struct State;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};
Handle AllreduceAsync(const Tensor& tensor, const AllreduceOptions& options = {});
Handle AllgatherAsync(const Tensor& tensor, const std::string& name = "");
Handle BroadcastAsync(const Tensor& tensor, int root_rank, const std::string& name = "");

// ---- Graphs

// Nodes that wait for the other ranks in each step. All ranks build the same graph: a tensor's name is the node's.
Output Allreduce(const Scope& scope, const Output& tensor, const AllreduceOptions& options = {});
// A sparse gradient: the rows of all ranks, divided by their number for an average.
IndexedSlices Allreduce(const Scope& scope, const IndexedSlices& slices, const AllreduceOptions& options = {});
Output Allgather(const Scope& scope, const Output& tensor);
Output Broadcast(const Scope& scope, const Output& tensor, int root_rank);

// Gives all variables of the graph that are not local the values of `root_rank`.
Operation BroadcastGlobalVariables(const Scope& scope, int root_rank = 0);
Operation BroadcastVariables(const Scope& scope, const std::vector<Var>& variables, int root_rank = 0);

// Runs BroadcastGlobalVariables in each new session, when the variables are initialised or restored.
class BroadcastGlobalVariablesHook : public SessionRunHook {
 public:
  explicit BroadcastGlobalVariablesHook(int root_rank = 0) : root_rank_(root_rank) {}
  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  bool GivesValues() const override { return Rank() != root_rank_; }

 private:
  const int root_rank_;
  Operation broadcast_;
};

struct DistributedOptimizerOptions {
  Reduction op = kAverage;  // or kSum
  Compression compression = Compression::kNone;
  // Makes sparse gradients dense before they travel: faster if they have most rows anyway.
  bool sparse_as_dense = false;
};

// An optimizer whose gradients are those of all ranks. Each rank applies them to variables of its own, which stay equal
// if they were so at the beginning. Errors are reported in the scope's status.
class DistributedOptimizer {
 public:
  explicit DistributedOptimizer(std::unique_ptr<Optimizer> optimizer, DistributedOptimizerOptions options = {})
      : optimizer_(std::move(optimizer)), options_(options) {}

  // Of all ranks. With one rank, the optimizer's own.
  std::vector<GradAndVar> ComputeGradients(const Scope& scope, const Output& loss,
                                           const ComputeGradientsOptions& options = {});
  Operation ApplyGradients(const Scope& scope, const std::vector<GradAndVar>& gradients,
                           const ApplyGradientsOptions& options = {});
  Operation Minimize(const Scope& scope, const Output& loss, const MinimizeOptions& options = {});

 private:
  const std::unique_ptr<Optimizer> optimizer_;
  const DistributedOptimizerOptions options_;
};

}  // namespace millrace::hvd
