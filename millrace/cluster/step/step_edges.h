// The edges between a master's task ("home") and each peer, numbered once, so that steps need no keys for them.
//
// The master numbers the edges between home and a peer, and after them the tensors that the client feeds and fetches at
// the peer; both ends use the same numbers. When a part is compiled, each of its numbered nodes gets a slot: an index
// into the arrays of that part.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/graph/partition.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {

// An attr of _Send and _Recv: the number of the edge, counted from 0 for each peer.
inline constexpr char kEdgeNumberAttr[] = "_edge_number";

// The numbers of the tensors that the client feeds and fetches in a part, by key.
struct ClientNumbers {
  absl::flat_hash_map<std::string, int> feeds, fetches;
};
// Numbers the edges between `home` and every other Millrace task, at both ends. `client` has one element per part.
void NumberEdges(absl::Span<Part> parts, const std::string& home,
                 absl::FunctionRef<bool(absl::string_view task)> speaks_millrace, std::vector<ClientNumbers>* client);

// A numbered node of a part.
struct StepEdge {
  enum class Kind { kSend, kRecv, kFeed, kFetch };
  Kind kind;
  int task = 0;    // the task at the other end: an index into StepEdges::tasks
  int number = 0;  // of the edge between the two tasks
  int group = -1;  // for kSend: an index into StepEdges::groups; -1 if it is sent by itself
  // For kSend: produced last, when the part waits for nothing more, so that it is piggybacked on the part's end.
  bool rides = false;
  std::string key = {};  // for nodes outside loops

  bool arrives() const { return kind == Kind::kRecv || kind == Kind::kFeed; }
};

// The numbered nodes of a part, by slot. Immutable.
struct StepEdges {
  struct Task {
    std::string name;          // empty in a part at a peer that has feeds or fetches but no edge with home
    uint64_t incarnation = 0;  // of a sending device of that task
    std::vector<int> arriving = {}, leaving = {};  // slots by number; -1 if none
  };

  std::vector<StepEdge> edges;
  std::vector<Task> tasks;
  std::vector<std::vector<int>> groups;  // the slots of tensors that are sent together
  int num_feeds = 0;

  // -1 if there is none.
  int FindTask(absl::string_view name) const;
  // The slot of the tensor with that number that arrives from the task; -1 if there is none.
  int Arriving(int task, uint64_t number) const {
    const std::vector<int>& slots = tasks[task].arriving;
    return number < slots.size() ? slots[number] : -1;
  }
};

// Assigns slots to the numbered nodes (kEdgeSlotAttr). Null if none is numbered. Invalid numbers are ignored: such
// edges use keys.
std::shared_ptr<const StepEdges> FindStepEdges(Graph* graph);

// A variable that the client fetches directly: it is read and sent when everything else in the part has run, as it is
// if the client is at home. Otherwise workers that stop at the global step that they fetch with the train op could
// leave each other waiting for a step that nobody runs.
struct LastFetch {
  std::string key;
  int slot = -1;  // of its edge; -1 if it is sent by key
};
// Removes their sends from the graph and its targets, and appends the variables to the fetches. Call it after
// FindStepEdges.
std::vector<LastFetch> TakeLastFetches(Graph* graph, PassContext* context);

}  // namespace millrace
