// Partitioning of a placed graph into one part per task.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/graph.h"

namespace millrace {

// A tensor that the client feeds or fetches, with the rendezvous key under which a part's _Recv or _Send transfers it.
struct ClientEdge {
  int index = 0;    // into PartitionOptions::feeds or fetches
  std::string key;  // the full key as on the wire: "device;incarnation;device;name;0:0"
};

struct Part {
  std::string task;  // "/job:ps/replica:0/task:0"
  // Every node is assigned to a device of that task and also requests it, so that the part can be exported as a
  // GraphDef. All of its nodes must run: compile it with its unused nodes as targets. Node ids are those of the whole
  // graph.
  std::unique_ptr<Graph> graph;
  std::vector<ClientEdge> feeds;
  std::vector<ClientEdge> fetches;
  // On the home task, feeds and fetches are passed directly instead of over edges: (index, tensor of `graph`). A fed
  // node that was detached before is detached here too. Feeds that the task does not use are omitted.
  std::vector<std::pair<int, Endpoint>> home_feeds;
  std::vector<std::pair<int, Endpoint>> home_fetches;
  // The tasks that this part's _Recv nodes receive from, without duplicates.
  std::vector<std::string> senders;
};

struct PartitionOptions {
  // The incarnation of each device by its full name; part of every rendezvous key.
  absl::flat_hash_map<std::string, uint64_t> incarnations;
  // The task whose feeds and fetches are passed directly (Part::home_feeds); if empty, all of them are edges.
  std::string home_task = {};
  // The tensors that the client feeds (their nodes are in the graph) and fetches, and the client's names for them:
  // `feed_names[i]` belongs to feeds[i] and becomes the tensor_name of its client edge.
  std::vector<Endpoint> feeds = {};
  std::vector<std::string> feed_names = {};
  std::vector<Endpoint> fetches = {};
  std::vector<std::string> fetch_names = {};
};

// Partitions `graph`, in which every node has a full assigned device, into one part per task that has nodes:
//
// - A tensor that is used on another task gets a _Send on its own task and one _Recv per device that uses it. A control
//   edge becomes an empty tensor that is sent after the node, and an Identity of it to wait for.
// - A loop that spans tasks gets a small control loop (Enter, Merge, Switch, NextIteration, driven by the predicate) on
//   each task that has nodes of it, and the _Recv nodes there wait for its Merge, so that they run once per iteration.
//   Enter and NextIteration are copied to each task that uses them; an Exit and a LoopCond move to their input's task.
// - A feed becomes a client-terminated _Recv on each task that uses it, with the same key on all of them; a fetch
//   becomes a client-terminated _Send on its own task.
// - Small constants are copied to the tasks that use them instead of being sent.
// - A TF1 variable is read when it is sent: after the updates that its reader is ordered after.
//
// Values are sent from and received in host memory; where an accelerator produces or uses them, by CPU:0 of its task.
//
// Names, keys and attributes follow TensorFlow, so that its workers can run a part. INVALID_ARGUMENT, naming both
// nodes, for an edge that would carry a reference or a handle to another task.
StatusOr<std::vector<Part>> PartitionGraph(std::unique_ptr<Graph> graph, const PartitionOptions& options);

// "send device;incarnation in hex;recv device;tensor;frame:iteration".
std::string RendezvousKeyText(absl::string_view send_device, uint64_t incarnation, absl::string_view recv_device,
                              absl::string_view tensor, uint64_t frame = 0, int64_t iteration = 0);

}  // namespace millrace
