// A signature compiled for a cluster: which task runs which part.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster/peers.h"
#include "millrace/cluster/worker_session.h"
#include "millrace/graph/partition.h"
#include "millrace/session/step_signature.h"

namespace millrace {

// What one task does in a step.
struct ProgramPart {
  const Peer* peer = nullptr;              // null: the master's own task
  uint64_t incarnation = 0;                // the peer's, when the program was compiled
  bool speaks_millrace = false;            // it forgets a step by itself that went well and whose tensors were all taken
  std::string graph_handle;                // at the peer
  std::shared_ptr<RegisteredGraph> graph;  // at home
  // Tensors of the client that the peer takes and gives, by key.
  std::vector<ClientEdge> feeds, fetches;
  // Where its edges are numbered: those of `feeds` and `fetches`, and which of the tasks that the part at home has edges with it is (-1: none).
  bool is_numbered = false;
  std::vector<int> feed_numbers, fetch_numbers;
  int edges_task = -1;
  // The same at home: indices of the plan's feeds and fetches.
  std::vector<int> home_feeds, home_fetches;
};

// Constant once it is registered everywhere.
struct MasterProgram {
  CallableSpec spec;
  FeedTypes feeds;
  std::vector<ProgramPart> parts;
  bool is_local() const { return parts.size() == 1 && parts[0].peer == nullptr; }
};

}  // namespace millrace
