// Internal to PartitionGraph (partition.h): the graph being partitioned, with the task, device and loop of each node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/loops.h"
#include "millrace/graph/partition.h"

namespace millrace {

// Sets the attrs of a _Send or _Recv that form the rendezvous key; `name` is the tensor's name.
void SetEdgeAttrs(NodeSpec* spec, absl::string_view name, const std::string& send_device, uint64_t incarnation,
                  const std::string& recv_device, bool client_terminated);

class CutGraph {
 public:
  static constexpr int kRoot = -1;  // outside all loops

  // `graph` and `options` must outlive this object.
  CutGraph(Graph* graph, const PartitionOptions& options) : graph_(graph), options_(options) {}

  // Parses the devices of all nodes. INVALID_ARGUMENT, naming the node, if one is not a full device name.
  Status FindTasks();

  struct Device {
    std::string name;
    int task = -1;
    int host = -1;  // the device whose memory its tensors are sent from and received in; itself for a CPU
    uint64_t incarnation = 0;
    bool has_incarnation = false;
  };
  struct FoundLoop {
    std::string frame_name;
    int parent = kRoot;
    Node* condition = nullptr;
    Node* enter = nullptr;
  };

  Graph* graph() const { return graph_; }
  const PartitionOptions& options() const { return options_; }
  const std::vector<std::string>& tasks() const { return tasks_; }
  const Device& device(int index) const { return devices_[index]; }
  // The number of a device, which is added if it is new.
  StatusOr<int> FindDevice(const std::string& name);
  // The device whose memory the node's tensors are sent from and received in.
  int HostOf(const Node* node) const { return devices_[device_of_[node->id()]].host; }
  // -1 for a feed, which belongs to no task.
  int TaskOf(const Node* node) const { return node->id() < Known() ? TaskOfDevice(device_of_[node->id()]) : -1; }
  // Index into PartitionOptions::feeds, or -1.
  int FeedIndex(const Endpoint& e) const;
  bool IsFeed(const Node* node) const { return fed_nodes_.contains(node->id()); }
  // The ids of fed nodes that nodes of `task` use.
  absl::flat_hash_set<int> FeedsOf(int task) const;
  // The frame names of the loops around the node, outermost first.
  std::vector<std::string> FramesOf(const Node* node) const;
  // Tasks that send to `task`, sorted, without duplicates.
  std::vector<std::string> SendersTo(int task) const;
  // The device of `task` that sends, receives and runs the added nodes.
  std::string HostDevice(int task) const { return tasks_[task] + "/device:CPU:0"; }

  // Loops, by number; none before SetLoops.
  void SetLoops(const LoopForest& forest);
  std::vector<FoundLoop>& loops() { return loops_; }
  const std::vector<FoundLoop>& loops() const { return loops_; }
  // The loop that a node runs in, and the one that its outputs are in.
  int LoopOf(const Node* node) const { return home_.empty() ? kRoot : home_[node->id()]; }
  int OutputLoopOf(const Node* node) const { return outer_.empty() ? kRoot : outer_[node->id()]; }
  void SetOutputLoop(const Node* node, int loop) { outer_[node->id()] = loop; }
  // The node that fires once per iteration of `loop` on `task`; null if the loop does not run there.
  Node* TriggerOf(int loop, int task) const;
  void SetTrigger(int loop, int task, Node* node) { triggers_[{loop, task}] = node; }

  // Adds a node on that device. `home` is the loop that it runs in, `output` the loop of its outputs.
  StatusOr<Node*> Add(NodeSpec spec, int device, absl::Span<const std::string> origins, int home, int output);
  void Move(Node* node, int device);
  std::string NewName(absl::string_view prefix, absl::string_view separator = "_S") {
    return graph_->UniqueName(absl::StrCat(prefix, separator, ++names_));
  }
  void AddSender(int from_task, int to_task);

 private:
  int Known() const { return static_cast<int>(device_of_.size()); }
  int TaskOfDevice(int device) const { return device < 0 ? -1 : devices_[device].task; }

  Graph* const graph_;
  const PartitionOptions& options_;
  std::vector<std::string> tasks_;
  std::vector<Device> devices_;
  absl::flat_hash_map<std::string, int> device_index_;
  absl::flat_hash_map<std::string, int> task_index_;
  std::vector<int> device_of_;                           // by id; -1 for feeds
  absl::flat_hash_map<std::pair<int, int>, int> feeds_;  // (id, output) to index
  absl::flat_hash_set<int> fed_nodes_;

  std::vector<FoundLoop> loops_;
  std::vector<int> home_;   // by id: the loop that a node runs in; empty if there are no loops
  std::vector<int> outer_;  // by id: the loop that its outputs are in
  absl::flat_hash_map<std::pair<int, int>, Node*> triggers_;  // (loop, task): fires once per iteration on that task

  std::vector<absl::flat_hash_set<int>> senders_;  // by task
  int64_t names_ = 0;
};

}  // namespace millrace
