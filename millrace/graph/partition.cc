#include "millrace/graph/partition.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "millrace/graph/control_loops.h"
#include "millrace/graph/cut_edges.h"

namespace millrace {
namespace {

bool HasFunction(const pb::AttrValue& value) { return value.has_func() || value.list().func_size() > 0; }

bool CallsFunctions(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    for (const auto& [name, value] : node->attrs()) {
      if (HasFunction(value)) return true;
    }
  }
  return false;
}

// The feeds and fetches of one part.
class ClientEdges {
 public:
  ClientEdges(const CutGraph& cut, const PartitionOptions& options, int task, Part* part)
      : cut_(cut), options_(options), task_(task), part_(*part), graph_(part->graph.get()) {}

  // Connects the feeds: over edges, or directly on the home task.
  Status TakeFeeds(bool is_home) {
    std::vector<Endpoint> at_home(options_.feeds.size());
    const std::vector<Node*> nodes(graph_->nodes().begin(), graph_->nodes().end());
    for (Node* node : nodes) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (cut_.TaskOf(node->input(i).node) >= 0) continue;
        const int feed = cut_.FeedIndex(node->input(i));
        if (feed < 0) continue;
        if (is_home) {
          at_home[feed] = node->input(i);
          continue;
        }
        MR_ASSIGN_OR_RETURN(const Endpoint value, Fed(feed, node));
        graph_->SetInput(node, i, value);
      }
      for (size_t i = 0; !is_home && i < node->control_inputs().size();) {
        Node* before = node->control_inputs()[i];
        if (!cut_.IsFeed(before)) {
          ++i;
        } else {
          graph_->RemoveControlInput(node, before);
        }
      }
    }
    for (size_t i = 0; i < at_home.size(); ++i) {
      if (at_home[i]) part_.home_feeds.emplace_back(static_cast<int>(i), at_home[i]);
    }
    if (!is_home) graph_->RemoveNodes([&](const Node* node) { return cut_.IsFeed(node); });
    return absl::OkStatus();
  }

  Status GiveFetch(int index, bool is_home) {
    const Endpoint& original = options_.fetches[index];
    const int feed = cut_.FeedIndex(original);
    Endpoint here;
    if (feed >= 0) {
      MR_ASSIGN_OR_RETURN(here, is_home ? HomeFeed(feed) : Fed(feed, nullptr));
    } else {
      here = {graph_->FindNodeById(original.node->id()), original.index};
      if (!here) return Internal("the fetched tensor ", original.name(), " is in no part");
    }
    if (is_home) {
      part_.home_fetches.emplace_back(index, here);
      return absl::OkStatus();
    }
    const std::string& name = options_.fetch_names[index];
    part_.fetches.push_back({index, Key(name)});
    if (!sent_.insert(name).second) return absl::OkStatus();
    NodeSpec spec = Edge("_Send", "_send_", name);
    spec.inputs = {here};
    spec.attrs["T"].set_type(static_cast<pb::DataType>(BaseType(here.dtype())));
    MR_ASSIGN_OR_RETURN(Node * send, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(send, cut_.HostDevice(task_));
    graph_->SetOrigins(send, {here.node->origins().begin(), here.node->origins().end()});
    return absl::OkStatus();
  }

 private:
  std::string Key(absl::string_view name) const {
    const std::string& device = cut_.HostDevice(task_);
    return RendezvousKeyText(device, Incarnation(), device, name);
  }

  uint64_t Incarnation() const {
    const auto it = options_.incarnations.find(cut_.HostDevice(task_));
    return it == options_.incarnations.end() ? 0 : it->second;
  }

  NodeSpec Edge(const char* op, const char* prefix, const std::string& name) const {
    NodeSpec spec;
    spec.name = graph_->UniqueName(absl::StrCat(prefix, absl::StrReplaceAll(name, {{":", "_"}})));
    spec.op = op;
    // Sender and receiver are the task itself: a TensorFlow worker accepts no other key from its master.
    const std::string& device = cut_.HostDevice(task_);
    SetEdgeAttrs(&spec, name, device, Incarnation(), device, true);
    return spec;
  }

  // The feed for `consumer`: received once per part, and entered into the loops that the consumer is in.
  StatusOr<Endpoint> Fed(int feed, const Node* consumer) {
    Node*& recv = received_[feed];
    const Node& origin = *options_.feeds[feed].node;
    if (recv == nullptr) {
      NodeSpec spec = Edge("_Recv", "_recv_", options_.feed_names[feed]);
      spec.attrs["tensor_type"].set_type(static_cast<pb::DataType>(BaseType(options_.feeds[feed].dtype())));
      MR_ASSIGN_OR_RETURN(recv, graph_->AddNode(std::move(spec)));
      graph_->SetAssignedDevice(recv, cut_.HostDevice(task_));
      graph_->SetOrigins(recv, {origin.name()});
      part_.feeds.push_back({feed, Key(options_.feed_names[feed])});
    }
    Endpoint value = recv->output(0);
    if (consumer == nullptr) return value;
    std::string path;
    for (const std::string& frame : cut_.FramesOf(consumer)) {
      absl::StrAppend(&path, frame, ";");
      Node*& enter = entered_[{feed, path}];
      if (enter == nullptr) {
        NodeSpec spec;
        spec.name = graph_->UniqueName(absl::StrCat(origin.name(), "/_enter"));
        spec.op = "Enter";
        spec.inputs = {value};
        spec.attrs["frame_name"].set_s(frame);
        spec.attrs["is_constant"].set_b(true);
        MR_ASSIGN_OR_RETURN(enter, graph_->AddNode(std::move(spec)));
        graph_->SetAssignedDevice(enter, cut_.HostDevice(task_));
        graph_->SetOrigins(enter, {origin.name()});
      }
      value = enter->output(0);
    }
    return value;
  }

  // A feed that is also fetched on the home task.
  StatusOr<Endpoint> HomeFeed(int feed) {
    for (const auto& [index, tensor] : part_.home_feeds) {
      if (index == feed) return tensor;
    }
    NodeSpec spec;
    spec.name = graph_->UniqueName(absl::StrCat(options_.feeds[feed].node->name(), "/_fed"));
    spec.op = "Placeholder";
    spec.attrs["dtype"].set_type(static_cast<pb::DataType>(BaseType(options_.feeds[feed].dtype())));
    MR_ASSIGN_OR_RETURN(Node * placeholder, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(placeholder, cut_.HostDevice(task_));
    part_.home_feeds.emplace_back(feed, placeholder->output(0));
    return placeholder->output(0);
  }

  const CutGraph& cut_;
  const PartitionOptions& options_;
  const int task_;
  Part& part_;
  Graph* const graph_;
  absl::flat_hash_map<int, Node*> received_;
  absl::flat_hash_map<std::pair<int, std::string>, Node*> entered_;
  absl::flat_hash_set<std::string> sent_;
};

}  // namespace

StatusOr<std::vector<Part>> PartitionGraph(std::unique_ptr<Graph> graph, const PartitionOptions& options) {
  if (options.feeds.size() != options.feed_names.size() || options.fetches.size() != options.fetch_names.size()) {
    return Internal("every tensor that the client feeds or fetches needs a name");
  }
  CutGraph cut(graph.get(), options);
  MR_RETURN_IF_ERROR(cut.FindTasks());
  const int num_tasks = static_cast<int>(cut.tasks().size());
  if (num_tasks > 1) {
    MR_RETURN_IF_ERROR(PrepareLoops(cut));
    MR_RETURN_IF_ERROR(CutEdges(cut));
  }
  // Fed tensors that are fetched without being on any task.
  int fetch_task = 0;
  for (int t = 0; t < num_tasks; ++t) {
    if (cut.tasks()[t] == options.home_task) fetch_task = t;
  }
  std::vector<std::vector<int>> fetches(num_tasks);
  for (size_t i = 0; i < options.fetches.size() && num_tasks > 0; ++i) {
    const int task = cut.FeedIndex(options.fetches[i]) >= 0 ? fetch_task : cut.TaskOf(options.fetches[i].node);
    if (task < 0) return Internal("the fetched tensor ", options.fetches[i].name(), " is on no task");
    fetches[task].push_back(static_cast<int>(i));
  }
  std::vector<Part> parts(num_tasks);
  for (int t = 0; t < num_tasks; ++t) {
    Part& part = parts[t];
    part.task = cut.tasks()[t];
    part.senders = cut.SendersTo(t);
    if (num_tasks == 1) continue;
    const absl::flat_hash_set<int> fed = part.task == options.home_task ? cut.FeedsOf(t) : absl::flat_hash_set<int>();
    part.graph = graph->Clone(
        [&](const Node* node) { return cut.TaskOf(node) == t || (!fed.empty() && fed.contains(node->id())); });
  }
  if (num_tasks == 1) parts[0].graph = std::move(graph);
  const Graph without_functions;
  for (int t = 0; t < num_tasks; ++t) {
    Part& part = parts[t];
    const bool is_home = part.task == options.home_task;
    ClientEdges client(cut, options, t, &part);
    if (!options.feeds.empty()) MR_RETURN_IF_ERROR(client.TakeFeeds(is_home));
    for (const int i : fetches[t]) MR_RETURN_IF_ERROR(client.GiveFetch(i, is_home));
    if (part.graph->library().function_size() > 0 && !CallsFunctions(*part.graph))
      part.graph->ShareLibrary(without_functions);
    for (Node* node : part.graph->nodes()) part.graph->SetRequestedDevice(node, node->assigned_device());
  }
  // A task may be empty after its nodes were moved to the tasks that use them.
  std::erase_if(parts, [](const Part& part) { return part.graph->num_nodes() == 0 && part.home_feeds.empty(); });
  return parts;
}

std::string RendezvousKeyText(absl::string_view send_device, uint64_t incarnation, absl::string_view recv_device,
                              absl::string_view tensor, uint64_t frame, int64_t iteration) {
  return absl::StrFormat("%s;%016x;%s;%s;%d:%d", send_device, incarnation, recv_device, tensor, frame, iteration);
}

}  // namespace millrace
