// Collective operations for threads that wait for them.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "millrace/collective/group.h"

namespace millrace::collective {

// Starts an operation and blocks until it is complete. The thread may read the group's messages itself meanwhile. Must
// not be called from a handler of a transport.
Status Await(CollectiveGroup& group, absl::FunctionRef<void(CollectiveGroup::Done)> start);

// As the methods of CollectiveGroup.
Status AllReduce(CollectiveGroup& group, const Elements& elements, Reduction reduction,
                 const OperationOptions& options = {});
Status ReduceScatter(CollectiveGroup& group, const Elements& elements, Reduction reduction,
                     const OperationOptions& options = {});
Status AllGather(CollectiveGroup& group, const Elements& elements, std::vector<int64_t> counts = {},
                 const OperationOptions& options = {});
Status Broadcast(CollectiveGroup& group, const Elements& elements, int root, const OperationOptions& options = {});
Status AllToAll(CollectiveGroup& group, const Elements& from, const Elements& to, const OperationOptions& options = {});
Status Barrier(CollectiveGroup& group, const OperationOptions& options = {});
Status FixedOrderAllReduce(CollectiveGroup& group, std::vector<ShardValue> values, const Elements& result,
                           Reduction reduction, std::vector<int> owners, const OperationOptions& options = {});
Status Leave(CollectiveGroup& group);

}  // namespace millrace::collective
