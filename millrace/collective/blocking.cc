#include "millrace/collective/blocking.h"

#include <utility>

#include "millrace/base/event_wait.h"

namespace millrace::collective {

using Done = CollectiveGroup::Done;

Status Await(CollectiveGroup& group, absl::FunctionRef<void(Done)> start) {
  Status result;
  if (group.Attend(start, &result)) return result;
  EventWait wait;
  {
    // While it starts the operation and while it waits, this thread counts as one that reads the group's messages.
    const ThreadHandover::Entry entry(group.handover(), wait.handover()->Here());
    start([&](Status status) {
      result = std::move(status);
      wait.Notify();
    });
    wait.Wait();
  }
  return result;
}

Status AllReduce(CollectiveGroup& group, const Elements& elements, Reduction reduction,
                 const OperationOptions& options) {
  if (std::optional<Status> quick = group.QuickAllReduce(elements, reduction, options)) return *std::move(quick);
  return Await(group, [&](Done done) { group.AllReduce(elements, reduction, options, std::move(done)); });
}

Status ReduceScatter(CollectiveGroup& group, const Elements& elements, Reduction reduction,
                     const OperationOptions& options) {
  return Await(group, [&](Done done) { group.ReduceScatter(elements, reduction, options, std::move(done)); });
}

Status AllGather(CollectiveGroup& group, const Elements& elements, std::vector<int64_t> counts,
                 const OperationOptions& options) {
  return Await(group, [&](Done done) { group.AllGather(elements, std::move(counts), options, std::move(done)); });
}

Status Broadcast(CollectiveGroup& group, const Elements& elements, int root, const OperationOptions& options) {
  return Await(group, [&](Done done) { group.Broadcast(elements, root, options, std::move(done)); });
}

Status AllToAll(CollectiveGroup& group, const Elements& from, const Elements& to, const OperationOptions& options) {
  return Await(group, [&](Done done) { group.AllToAll(from, to, options, std::move(done)); });
}

Status Barrier(CollectiveGroup& group, const OperationOptions& options) {
  return Await(group, [&](Done done) { group.Barrier(options, std::move(done)); });
}

Status FixedOrderAllReduce(CollectiveGroup& group, std::vector<ShardValue> values, const Elements& result,
                           Reduction reduction, std::vector<int> owners, const OperationOptions& options) {
  return Await(group, [&](Done done) {
    group.FixedOrderAllReduce(std::move(values), result, reduction, std::move(owners), options, std::move(done));
  });
}

Status Leave(CollectiveGroup& group) {
  return Await(group, [&](Done done) { group.Leave(std::move(done)); });
}

}  // namespace millrace::collective
