// Sets up the step transport to the tasks that a part receives tensors from, before its first step.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/cluster/worker/peers.h"
#include "millrace/graph/graph.h"

namespace millrace {

// Calls WorkerInterface::Prepare of the peers that `graph` receives from, except `master`, whose tensors arrive on the
// call that runs the part. Calls `done` when all are prepared.
void PrepareSenders(const Graph& graph, const PeerSet& peers, const std::string& master,
                    absl::AnyInvocable<void()> done);

}  // namespace millrace
