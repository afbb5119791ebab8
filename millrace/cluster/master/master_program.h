// A step program: a signature compiled for a cluster, with the part that each task runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster/worker/peers.h"
#include "millrace/cluster/worker/worker_session.h"
#include "millrace/graph/partition.h"
#include "millrace/task/step_signature.h"

namespace millrace {

// The part of one task in a step.
struct ProgramPart {
  const Peer* peer = nullptr;    // null for the master's own task (home)
  uint64_t incarnation = 0;      // of the peer when the program was compiled
  bool speaks_millrace = false;  // a Millrace task: forgets a successful step by itself once its tensors are taken
  std::string graph_handle;      // the handle of the graph registered at the peer
  std::shared_ptr<RegisteredGraph> graph;  // the graph, if this is the part at home
  // The tensors that the client feeds and fetches at the peer, by key.
  std::vector<ClientEdge> feeds, fetches;
  // If its edges are numbered: the numbers of `feeds` and `fetches`, and the peer's index in StepEdges::tasks of the
  // part at home (-1 if there is no edge between the two).
  bool is_numbered = false;
  std::vector<int> feed_numbers, fetch_numbers;
  int edges_task = -1;
  // For the part at home: the indices of the plan's feeds and fetches in the client's lists.
  std::vector<int> home_feeds, home_fetches;
};

// Immutable once it is registered with all tasks.
struct MasterProgram {
  CallableSpec spec;
  FeedTypes feeds;
  std::vector<ProgramPart> parts;
  int64_t collective_graph_key = 0;  // 0 if it has no collective ops; see CollectiveGraphKey
  bool is_local() const { return parts.size() == 1 && parts[0].peer == nullptr; }
};

}  // namespace millrace
