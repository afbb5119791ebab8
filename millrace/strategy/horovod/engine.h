// Carries out the operations of a rank: finds out which of them all ranks have submitted, and does these together.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/timer.h"
#include "millrace/runtime/named_collectives.h"
#include "millrace/strategy/horovod/carrier.h"
#include "millrace/strategy/horovod/operation_trace.h"
#include "millrace/strategy/horovod/ready_table.h"

namespace millrace::hvd {

struct EngineOptions {
  // Small tensors that are ready together travel in one buffer of up to this size; 0: each by itself.
  size_t fusion_bytes = size_t{64} << 20;
  // How long a rank waits for more of its own tensors before it asks the others again, if nothing was ready on all.
  absl::Duration cycle_time = absl::Milliseconds(1);
  // How many operations are negotiated by one byte each when they are repeated.
  size_t cache_capacity = 1024;
  // A log line names the ranks that have not submitted a tensor for this time.
  absl::Duration stall_warning = absl::Seconds(10);
  // On rank 0: where the trace of all operations is written, for chrome://tracing. May be empty.
  std::string timeline = {};
};

// Ranks may submit operations in different orders, from any threads. A thread of the engine negotiates in rounds, in
// which every rank says what it has submitted; a rank with nothing to do takes part in no round, and the others wait
// for it. What all ranks have submitted is carried out at the end of the round, in the same order on all of them.
//
// Operations that differ between ranks get INVALID_ARGUMENT, on all ranks, with two ranks and what each of them has;
// the engine goes on. An error of the carrier, such as a rank that died, ends the engine: all operations get it.
//
// Thread-safe.
class Engine final : public NamedCollectives {
 public:
  // Called on the engine's thread, where the carrier is also used and destroyed.
  using MakeCarrier = absl::AnyInvocable<StatusOr<std::unique_ptr<Carrier>>()>;
  static StatusOr<std::shared_ptr<Engine>> Start(MakeCarrier make, EngineOptions options);
  // Without Shutdown the other ranks get an error that names this one. Waits for a round that is under way.
  ~Engine() override;

  int rank() const override { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  void Submit(NamedCollective operation, Done done) override;
  StatusOr<Tensor> SubmitAndWait(NamedCollective operation);
  // Until all ranks have called it, this rank contributes zeros to sums and means, and no rows to allgathers. Returns
  // the rank that called it last.
  StatusOr<int> Join();
  // On all ranks, after the last operation. What others submit after that gets UNAVAILABLE naming this rank.
  Status Shutdown();

 private:
  struct Pending {
    Announcement what;
    Tensor tensor;
    Done done;
    absl::Time since;
    bool announced = false;
    bool stalled = false;
    std::vector<int> missing = {};
  };
  using Decision = ReadyTable::Decision;
  using JoinDone = absl::AnyInvocable<void(StatusOr<int>)>;

  explicit Engine(EngineOptions options);

  // On the engine's thread.
  void Run(MakeCarrier make);
  Status Loop();
  bool AwaitWork(bool progress);
  StatusOr<bool> Round(bool* all_leave);
  Tensor Signs(Report* report);
  Status AddReports(const Report& own);
  Status Execute(const std::vector<Decision>& decisions);
  // Those of `decisions` from `first` on that travel together.
  size_t FusedWith(const std::vector<Decision>& decisions, size_t first) const;
  Status ExecuteFused(const Decision* first, size_t count);
  // Memory for the tensors that travel together, which only its user refers to. Give it back for the next time.
  StatusOr<Tensor> TakeFusionBuffer(DType dtype, int64_t elements);
  void ReturnFusionBuffer(const Tensor& buffer);
  Status ExecuteAllgather(const Announcement& what);
  Status Exchange(const Announcement& what, Tensor* tensor);
  // This rank's tensor; zeros, or no rows, if it has joined.
  StatusOr<Tensor> TakeTensor(const Announcement& what);
  void Finish(const std::string& name, StatusOr<Tensor> result);
  void FinishJoin(StatusOr<int> result);
  // Ends everything that is pending.
  void FailAll(const Status& why);
  void NoteMissing();

  // Schedules the next look at what has been pending for long.
  void WatchForStalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NameStalls();

  const EngineOptions options_;
  Clock* const clock_ = Clock::Real();
  std::unique_ptr<Carrier> carrier_;  // of the engine's thread; set before `started_`
  std::unique_ptr<ReadyTable> table_;
  int64_t fusion_capacity_ = 0;
  Tensor fusion_buffer_;                   // bytes; kept because fresh memory is slow to touch
  std::unique_ptr<OperationTrace> trace_;  // null if there is none
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  Notification started_;
  Status start_status_;
  Notification ended_;
  Status end_status_;  // of Shutdown; set before `ended_`

  mutable Mutex mu_;
  CondVar work_;
  Status failed_ ABSL_GUARDED_BY(mu_);  // why nothing more is carried out
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool shutdown_ ABSL_GUARDED_BY(mu_) = false;
  bool fresh_ ABSL_GUARDED_BY(mu_) = false;  // something was submitted since the last round began
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);  // in the order of submission
  absl::flat_hash_map<std::string, uint64_t> by_name_ ABSL_GUARDED_BY(mu_);
  JoinDone join_ ABSL_GUARDED_BY(mu_);
  bool join_announced_ ABSL_GUARDED_BY(mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;
  ThreadGroup thread_{"hvd"};  // last: its destructor waits for the thread
};

}  // namespace millrace::hvd
