// A placed graph cut into one part for each task.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/graph.h"

namespace millrace {

// A tensor that the client gives or wants, and where: under which key a part's _Recv waits for it or its _Send gives it.
struct ClientEdge {
  int index = 0;    // into PartitionOptions::feeds or fetches
  std::string key;  // whole, as on the wire: "device;incarnation;device;name;0:0"
};

struct Part {
  std::string task;              // "/job:ps/replica:0/task:0"
  // Every node is assigned to a device of that task, and asks for it too, so that the part can be written as a GraphDef. All of its nodes are
  // meant to run: who compiles it takes those that nobody uses as targets. Ids are those of the whole.
  std::unique_ptr<Graph> graph;
  std::vector<ClientEdge> feeds;
  std::vector<ClientEdge> fetches;
  // In the part of the home task these are tensors rather than edges: (index, tensor of `graph`). A fed node that was detached before is
  // detached here too. A feed that the task does not use is in none of these.
  std::vector<std::pair<int, Endpoint>> home_feeds;
  std::vector<std::pair<int, Endpoint>> home_fetches;
  // The tasks that this part's _Recv nodes receive from, without doubles.
  std::vector<std::string> senders;
};

struct PartitionOptions {
  // Incarnation of each device by its full name: part of every key.
  absl::flat_hash_map<std::string, uint64_t> incarnations;
  // The task whose client tensors are handed over directly (Part::home_feeds); empty for none, so that all of them are edges.
  std::string home_task = {};
  // Tensors that the client feeds: placeholders that stand in the graph. And those that it fetches. By the names the client gave
  // them (`feed_names[i]` belongs to feeds[i]): they become tensor_name of client edges.
  std::vector<Endpoint> feeds = {};
  std::vector<std::string> feed_names = {};
  std::vector<Endpoint> fetches = {};
  std::vector<std::string> fetch_names = {};
};

// Cuts `graph`, plain nodes each with a full assigned device, into parts, one for each task that has nodes (so one when all is on one task):
//
// - A tensor that is used on another task gets a _Send where it is made and one _Recv for each device that uses it. A control edge becomes an
//   empty tensor, sent after the node, and an Identity of it to wait for.
// - A loop that spans tasks gets a small control loop (Enter, Merge, Switch, NextIteration, driven by the predicate) on each task that has
//   nodes of it, and the _Recv nodes there wait for its Merge, so that they run once per iteration. Enter and NextIteration are made anew
//   on each task that uses them; an Exit and a LoopCond move to where their input is made.
// - A feed is a client-terminated _Recv on each task that uses it; a fetch a client-terminated _Send on its own task. The key of a feed is the
//   same on all tasks: each is given the tensor.
// - Small constants that other tasks use are copied to them rather than sent.
// - A TF1 variable is read when it is sent: after the updates that its reader is ordered after.
//
// Values are sent from and received in the host's memory: by CPU:0 of the task where an accelerator makes or uses them.
//
// Names, keys and attributes are TensorFlow's, so that a part may run on its workers. INVALID_ARGUMENT for what cannot be cut: an edge that
// carries a reference or a handle between tasks names both nodes.
StatusOr<std::vector<Part>> PartitionGraph(std::unique_ptr<Graph> graph, const PartitionOptions& options);

// "send device;incarnation in hex;recv device;tensor;frame:iteration".
std::string RendezvousKeyText(absl::string_view send_device, uint64_t incarnation, absl::string_view recv_device,
                              absl::string_view tensor, uint64_t frame = 0, int64_t iteration = 0);

}  // namespace millrace
