// Agreeing with the tasks that a part receives tensors from on what its steps take, before the first of them.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/cluster/peers.h"
#include "millrace/graph/graph.h"

namespace millrace {

// Prepares (WorkerInterface::Prepare) the peers that `graph` receives from, but `master`, whose tensors come on the call that runs the part. Calls
// `done` when all are.
void PrepareSenders(const Graph& graph, const PeerSet& peers, const std::string& master, absl::AnyInvocable<void()> done);

}  // namespace millrace
