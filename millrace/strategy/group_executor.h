// The collective operations of graphs, by a group of workers.
#pragma once

#include <memory>

#include "millrace/runtime/collective_executor.h"
#include "millrace/strategy/worker_group.h"

namespace millrace {

// `workers` must have a group of several.
RefPtr<CollectiveExecutor> NewGroupExecutor(std::shared_ptr<WorkerGroup> workers, absl::Duration timeout);

// INVALID_ARGUMENT, with the names that there are, unless it is one of an all-reduce's algorithms.
Status CheckAllReduceAlgorithm(const std::string& name);

}  // namespace millrace
