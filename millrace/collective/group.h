// Collective operations of a group of ranks: every rank calls the same operations in the same order, and each gets the
// result of all.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/base/thread_handover.h"
#include "millrace/collective/fixed_order.h"
#include "millrace/collective/group_options.h"
#include "millrace/collective/operation.h"
#include "millrace/collective/service.h"

namespace millrace::collective {

class GroupCore;

// Elements in memory, aligned for their type.
//
// The memory stays valid and unchanged by others until the operation's `done`. After an error other ranks may still
// read it: give an `owner`, which is held for as long as that may happen, or keep it until the transport is gone.
struct Elements {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kInvalid;
  RefPtr<const RefCounted> owner = nullptr;
};
template <typename T>
Elements ElementsOf(absl::Span<T> span) {
  return {span.data(), static_cast<int64_t>(span.size()), DTypeOf<T>()};
}

struct OperationOptions {
  // The instance key: names the operation in messages. It is the same on all ranks, and so is the order of the keys.
  std::string key = {};
  AlgorithmKind algorithm = AlgorithmKind::kAuto;
  // DEADLINE_EXCEEDED after this time, on all ranks; the group has then failed.
  absl::Duration timeout = absl::InfiniteDuration();
};

// One rank of a group. Operations are asynchronous: `done` is called once, on any thread, perhaps before the operation
// returns; it must not block. blocking.h has functions that wait. Several operations may be in flight.
//
// All operations that reduce give the same bytes on all ranks, and the result depends on the algorithm, the number of
// ranks and the number of elements, never on timing; algorithm.h says in which order each algorithm combines.
//
// Errors. If the ranks differ in type, size, reduction or order, all of them get INVALID_ARGUMENT with two that differ
// and what each of them does. If a rank dies or leaves, all others get UNAVAILABLE naming it: at once if its connection
// breaks, after `peer_timeout` if it is silent. After an error the group is of no use: every later operation gets the
// same error.
//
// Thread-safe.
class CollectiveGroup {
 public:
  using Done = absl::AnyInvocable<void(Status)>;

  // Does not wait for the other ranks: the first operations do. `service` is served at this rank's address.
  static StatusOr<std::unique_ptr<CollectiveGroup>> Make(CollectiveService* service, GroupOptions options);
  // Operations in flight get CANCELLED here and UNAVAILABLE elsewhere. To end a group that works, call Leave first:
  // otherwise a rank that is still in the last operation may find the others gone.
  ~CollectiveGroup();

  int rank() const;
  int size() const;

  // In place: afterwards `elements` of all ranks have the combination of all. Algorithms: kDirect, kHierarchy,
  // kDoubling, kTree, kHalvingDoubling, kRing.
  void AllReduce(Elements elements, Reduction reduction, const OperationOptions& options, Done done);
  // In place: afterwards part r of rank r's elements (ScatterPart) has the combination; the rest is undefined.
  void ReduceScatter(Elements elements, Reduction reduction, const OperationOptions& options, Done done);
  // In place: rank r contributes the r-th part of `elements`, and afterwards all have all parts. The parts have
  // `counts` elements, the same on all ranks; without counts they are those of ScatterPart.
  void AllGather(Elements elements, std::vector<int64_t> counts, const OperationOptions& options, Done done);
  // Afterwards all have the elements of `root`.
  void Broadcast(Elements elements, int root, const OperationOptions& options, Done done);
  // `from` and `to` have a block of the same number of elements for each rank: block r of `from` goes to rank r, and
  // block r of `to` comes from rank r.
  void AllToAll(Elements from, Elements to, const OperationOptions& options, Done done);
  // Ends when all ranks have started it.
  void Barrier(const OperationOptions& options, Done done);

  // All-reduce in fixed order: combines the values of logical shards in a tree that depends on their number alone
  // (base/shard_tree.h), so that the result is the same, byte for byte, on any number of ranks. `owners` has the rank
  // of each shard, the same on all ranks (EvenOwners); `values` has this rank's shards, each with as many elements as
  // `result`. kMean divides by the number of shards.
  void FixedOrderAllReduce(std::vector<ShardValue> values, Elements result, Reduction reduction,
                           std::vector<int> owners, const OperationOptions& options, Done done);

  // Waits for all ranks and takes leave of them: call it on all ranks after the last operation. `done` is called when
  // the group and its transport may be destroyed; after an error, when the others have been told.
  void Leave(Done done);
  // Ends the group on all ranks with this error.
  void Abort(Status why);

  // For threads that wait for operations (blocking.h), in one of two ways. If ranks of this host leave messages in
  // shared memory: starts an operation, handles these messages until it is complete, and gives its status. Otherwise
  // returns false and does nothing.
  bool Attend(absl::FunctionRef<void(Done)> start, Status* result);
  // AllReduce on a thread that waits for it, if there is a quicker way than to start it and to wait: few elements of
  // few ranks of one host, and nothing else in flight. Otherwise returns nothing and does nothing.
  std::optional<Status> QuickAllReduce(const Elements& elements, Reduction reduction, const OperationOptions& options);
  // For EventWait: a thread that has entered it may read the messages of connections itself.
  const RefPtr<ThreadHandover>& handover() const;
  // For tests of how messages travel.
  const GroupCore& core() const { return *core_; }

 private:
  explicit CollectiveGroup(CollectiveService* service, std::shared_ptr<GroupCore> core);
  void Start(OperationSpec spec, std::unique_ptr<Algorithm> algorithm, const Elements& elements,
             const OperationOptions& options, Done done);

  CollectiveService* const service_;
  const std::shared_ptr<GroupCore> core_;
};

// The elements that ReduceScatter leaves on a rank: first and last + 1 of `count`.
std::pair<int64_t, int64_t> ScatterPart(int64_t count, int rank, int size);

}  // namespace millrace::collective
