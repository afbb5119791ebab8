// The edges between a master's task ("home") and each peer, numbered once, so that steps need no keys for them.
//
// The master gives each edge between home and a peer a number that both ends know, and the tensors that the client feeds and fetches at the peer
// others behind them. Where a part is compiled, its numbered nodes get slots: places in tables that are arrays.
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

// Of a _Send or _Recv: the number of its edge, from 0 for each peer.
inline constexpr char kEdgeNumberAttr[] = "_edge_number";

// The numbers of what the client feeds and fetches in a part, by key.
struct ClientNumbers {
  absl::flat_hash_map<std::string, int> feeds, fetches;
};
// Numbers the edges between `home` and each other task that `speaks_millrace`, on both sides; `client` is by part.
void NumberEdges(absl::Span<Part> parts, const std::string& home, absl::FunctionRef<bool(absl::string_view task)> speaks_millrace,
                 std::vector<ClientNumbers>* client);

// A numbered node of a part.
struct StepEdge {
  enum class Kind { kSend, kRecv, kFeed, kFetch };
  Kind kind;
  int task = 0;        // who is at the other end: an index into StepEdges::tasks
  int number = 0;      // between the two
  int group = -1;      // of kSend: an index into StepEdges::groups; -1: goes by itself
  bool rides = false;  // of kSend: when it is there, the part waits for nothing any more, so it can go with the part's end
  std::string key = {};  // outside loops

  bool arrives() const { return kind == Kind::kRecv || kind == Kind::kFeed; }
};

// The numbered nodes of a part, by slot. Constant once it is made.
struct StepEdges {
  struct Task {
    std::string name;               // empty in a part at a peer that has no edge with home, but feeds or fetches
    uint64_t incarnation = 0;       // of a device there that sends
    std::vector<int> arriving = {}, leaving = {};  // slots by number; -1: none
  };

  std::vector<StepEdge> edges;
  std::vector<Task> tasks;
  std::vector<std::vector<int>> groups;  // slots of what leaves together
  int num_feeds = 0;

  // -1 when there is none.
  int FindTask(absl::string_view name) const;
  // The slot of a tensor that comes from that task; -1 when nothing comes under the number.
  int Arriving(int task, uint64_t number) const {
    const std::vector<int>& slots = tasks[task].arriving;
    return number < slots.size() ? slots[number] : -1;
  }
  int Leaving(int task, uint64_t number) const {
    const std::vector<int>& slots = tasks[task].leaving;
    return number < slots.size() ? slots[number] : -1;
  }
};

// Gives the nodes their slots (kEdgeSlotAttr). Null when none is numbered. Numbers that make no sense are left out: such edges go by key.
std::shared_ptr<const StepEdges> FindStepEdges(Graph* graph);

// A variable that the client fetches as such: it is read, and sent, when all else of the part has run, as it is in a part that has the client at home.
// Workers that end by the step they fetch beside their train op would else leave one another waiting for a step that nobody makes.
struct LateRead {
  std::string key;
  int slot = -1;  // of its edge; -1: it goes by key
};
// Takes their sends out of the graph and its targets; what they sent goes behind the fetches. After FindStepEdges.
std::vector<LateRead> TakeLateReads(Graph* graph, PassContext* context);

}  // namespace millrace
