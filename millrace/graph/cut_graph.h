// A graph while it is being cut into parts: which task and device each node is on, and in which loop. Inside of partition.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/partition.h"

namespace millrace {

class CutGraph {
 public:
  static constexpr int kRoot = -1;  // outside of all loops

  // `graph` and `options` outlive this.
  CutGraph(Graph* graph, const PartitionOptions& options) : graph_(graph), options_(options) {}

  // Reads the devices of all nodes. INVALID_ARGUMENT names a node without a full one.
  Status FindTasks();

  // Makes loops that span tasks ready to be cut (control_loops.cc): nodes that only hand a value into or round a loop stand on
  // the tasks that use them, and every task with nodes of such a loop has something that goes round with it.
  Status PrepareLoops();

  // Puts a _Send and a _Recv in the place of every edge between tasks (cut_edges.cc). Feeds are left alone.
  Status CutEdges();

  const std::vector<std::string>& tasks() const { return tasks_; }
  // -1 for a feed, which is on no task.
  int TaskOf(const Node* node) const { return node->id() < Known() ? TaskOfDevice(device_of_[node->id()]) : -1; }
  // Index into PartitionOptions::feeds, or -1.
  int FeedIndex(const Endpoint& e) const;
  bool IsFeed(const Node* node) const { return fed_nodes_.contains(node->id()); }
  // The ids of fed nodes that nodes of `task` use.
  absl::flat_hash_set<int> FeedsOf(int task) const;
  // The loops from the outermost to the one that the node runs in: the frame names.
  std::vector<std::string> FramesOf(const Node* node) const;
  // Tasks that send to `task`, sorted, once each.
  std::vector<std::string> SendersTo(int task) const;
  // The device of `task` that sends, receives and runs what this file adds.
  std::string HostDevice(int task) const { return tasks_[task] + "/device:CPU:0"; }

 private:
  struct Device {
    std::string name;
    int task = -1;
    int host = -1;  // the device in whose memory its tensors are sent and received; itself for a CPU
    uint64_t incarnation = 0;
    bool has_incarnation = false;
  };
  struct FoundLoop {
    std::string frame_name;
    int parent = kRoot;
    Node* condition = nullptr;
    Node* enter = nullptr;
  };

  int Known() const { return static_cast<int>(device_of_.size()); }
  int TaskOfDevice(int device) const { return device < 0 ? -1 : devices_[device].task; }
  int HostOf(const Node* node) const { return devices_[device_of_[node->id()]].host; }
  StatusOr<int> FindDevice(const std::string& name);
  int LoopOf(const Node* node) const { return home_.empty() ? kRoot : home_[node->id()]; }
  int OutputLoopOf(const Node* node) const { return outer_.empty() ? kRoot : outer_[node->id()]; }

  // A new node on that device. `home` is the loop it runs in, `output` where its outputs are.
  StatusOr<Node*> Add(NodeSpec spec, int device, absl::Span<const std::string> origins, int home, int output);
  void Move(Node* node, int device);
  std::string NewName(absl::string_view prefix) { return graph_->UniqueName(absl::StrCat(prefix, "_S", ++names_)); }

  // Loops.
  Status TwinAtBorders();
  StatusOr<Node*> TwinOn(Node* node, int device);
  void DropUnused(std::vector<Node*> unused);
  Status AddControlLoops();
  Status AddControlLoop(int loop, int task);

  // Edges.
  Status CutInputs(Node* node);
  Status CutControlInputs(Node* node);
  StatusOr<Endpoint> Received(const Endpoint& source, Node* consumer, int slot);
  StatusOr<Node*> Send(const Endpoint& source, int to_device, std::vector<Node*> control_inputs);
  StatusOr<Endpoint> Replica(Node* constant, int device);
  StatusOr<Node*> WaitFor(Node* before, int device);
  StatusOr<Node*> Join(std::vector<Node*> before, const Node* consumer);
  bool IsReplicable(const Node& node) const;
  Status CheckMayCross(const Endpoint& source, const Node& consumer, int slot) const;

  Graph* const graph_;
  const PartitionOptions& options_;
  std::vector<std::string> tasks_;
  std::vector<Device> devices_;
  absl::flat_hash_map<std::string, int> device_index_;
  absl::flat_hash_map<std::string, int> task_index_;
  std::vector<int> device_of_;             // by id; -1 for feeds
  absl::flat_hash_map<std::pair<int, int>, int> feeds_;  // (id, output) to index
  absl::flat_hash_set<int> fed_nodes_;

  std::vector<FoundLoop> loops_;
  std::vector<int> home_;   // by id: the loop that a node runs in; empty when there are no loops
  std::vector<int> outer_;  // by id: the loop that its outputs are in
  absl::flat_hash_map<std::pair<int, int>, Node*> triggers_;  // (loop, task): fires once in every iteration there
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> twins_;  // (node, task)

  struct Pair {
    Endpoint source;
    int device;
    const Node* consumer;  // of a pair that is not shared; null otherwise
    friend bool operator==(const Pair&, const Pair&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Pair& p) {
      return H::combine(std::move(h), p.source, p.device, p.consumer);
    }
  };
  absl::flat_hash_map<Pair, Node*> received_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> replicas_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> waits_;     // (source, device): what to wait for there
  absl::flat_hash_map<const Node*, Node*> empties_;                   // the empty tensor that is sent for a node
  absl::flat_hash_map<std::vector<int>, Node*> joins_;                // by ids
  std::vector<absl::flat_hash_set<int>> senders_;                     // by task
  int64_t names_ = 0;
  int64_t edges_ = 0;
};

}  // namespace millrace
