#include "tests/split/split_session.h"

#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/base/timer.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/passes/function_inliner.h"
#include "millrace/graph/placement.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/task/task.h"

namespace millrace::split {
namespace {

// One task's view of the rendezvous, which already contains the client's feeds.
class TaskRendezvous : public Rendezvous {
 public:
  explicit TaskRendezvous(Rendezvous* shared) : shared_(shared) {}
  void Give(const std::string& key, Tensor value) { given_[key] = std::move(value); }
  Status Send(absl::string_view key, RendezvousItem item) override { return shared_->Send(key, std::move(item)); }
  void Recv(absl::string_view key, Done done) override {
    if (const auto it = given_.find(key); it != given_.end()) return done(RendezvousItem{it->second, false});
    shared_->Recv(key, std::move(done));
  }
  void Abort(Status why) override { shared_->Abort(std::move(why)); }

 private:
  Rendezvous* const shared_;
  absl::flat_hash_map<std::string, Tensor> given_;
};

uint64_t Mix(int64_t seed, absl::string_view name) {
  uint64_t h = 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(seed + 1);
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 32);
}

bool CarriesState(const Endpoint& e) {
  const DType base = BaseType(e.dtype());
  return IsRef(e.dtype()) || base == DType::kResource || base == DType::kVariant;
}

std::vector<Node*> NodesNobodyUses(const Graph& graph) {
  std::vector<bool> used(graph.max_id(), false);
  for (const Node* node : graph.nodes()) {
    for (const Endpoint& e : node->inputs()) used[e.node->id()] = true;
    for (const Node* before : node->control_inputs()) used[before->id()] = true;
  }
  std::vector<Node*> sinks;
  for (Node* node : graph.nodes()) {
    if (!used[node->id()]) sinks.push_back(node);
  }
  return sinks;
}

}  // namespace

struct SplitSession::Member {
  std::shared_ptr<Task> task;
  std::shared_ptr<TaskSession> session;
  PartOptions parts;

  const std::string& name() const { return task->name(); }
  Device& device() const { return *task->devices()[0]; }
};

struct SplitSession::Step {
  struct Running {
    Task* task = nullptr;
    CompiledPart part;
    std::vector<std::pair<int, std::string>> feed_keys, fetch_keys;
    std::vector<int> feeds, fetches;  // those that are handed over directly
    std::vector<Tensor> feed_values, fetch_values;
    std::unique_ptr<TaskRendezvous> rendezvous;
  };
  std::vector<std::unique_ptr<Running>> parts;
  LocalRendezvous rendezvous;
  CancellationManager cancellation;
};

SplitSession::SplitSession(const SplitOptions& options) : options_(options), pool_("inter_op", 4) {
  auto intra = std::make_shared<ThreadPool>("intra_op", 1);
  for (int t = 0; t < options.tasks; ++t) {
    TaskOptions task{.name = absl::StrCat("/job:worker/replica:0/task:", t)};
    task.devices.push_back(NewCpuDevice({.name = task.name + "/device:CPU:0", .pool = intra}));
    task.inter_op = &pool_;
    auto member = std::make_unique<Member>();
    member->task = std::make_shared<Task>(std::move(task));
    member->session = member->task->NewSession();
    member->parts.passes = options.passes;
    member->parts.functions = member->task->NewFunctions(*member->session, member->parts);
    tasks_.push_back(std::move(member));
  }
}

SplitSession::~SplitSession() {
  for (auto& member : tasks_) {
    Notification idle;
    member->task->Close(Cancelled("the session is closed"), Cancelled("the session is closed"), [&] { idle.Notify(); });
    idle.Wait();
    member->task->resources()->ClearAll();
  }
}

Status SplitSession::Extend(pb::GraphDef def) {
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), &graph_));
  for (auto& task : tasks_) task->parts.functions->UseLibrary(graph_);
  return absl::OkStatus();
}

Status SplitSession::Extend(const Graph& graph) { return Extend(ExportGraphDef(graph)); }

std::vector<Device*> SplitSession::ListDevices() const {
  std::vector<Device*> devices;
  for (const auto& task : tasks_) devices.push_back(&task->device());
  return devices;
}

// Requests a task for every node, the same for all nodes that share state. Done for the whole graph, so that it is the
// same in every step.
void SplitSession::Scatter(Graph* graph) {
  std::vector<int> parent(graph->max_id());
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  absl::flat_hash_map<std::string, int> by_name;
  for (const Node* node : graph->nodes()) {
    for (const Endpoint& e : node->inputs()) {
      if (CarriesState(e)) parent[find(node->id())] = find(e.node->id());
    }
    if (const pb::AttrValue* classes = node->FindAttr("_class")) {
      for (const std::string& name : classes->list().s()) {
        const Node* other = graph->FindNode(absl::StripPrefix(name, "loc:@"));
        if (other != nullptr) parent[find(node->id())] = find(other->id());
      }
    }
    const std::string shared = node->AttrOr<std::string>("shared_name", "");
    if (!shared.empty()) {
      const auto [it, is_new] = by_name.emplace(shared, node->id());
      if (!is_new) parent[find(node->id())] = find(it->second);
    }
  }
  std::vector<int> task_of(graph->max_id(), -1);
  for (const Node* node : graph->nodes()) {
    if (!node->op().is_stateful) continue;
    if (const auto it = homes_.find(node->name()); it != homes_.end()) task_of[find(node->id())] = it->second;
  }
  for (Node* node : graph->nodes()) {
    int& task = task_of[find(node->id())];
    if (task < 0) task = static_cast<int>(Mix(options_.seed, node->name()) % tasks_.size());
    if (node->op().is_stateful) homes_.emplace(node->name(), task);
    graph->SetRequestedDevice(node, tasks_[task]->name());
  }
}

StatusOr<std::unique_ptr<SplitSession::Step>> SplitSession::Compile(absl::Span<const Feed> feeds,
                                                                    absl::Span<const std::string> fetches,
                                                                    absl::Span<const std::string> targets) {
  if (fetches.empty() && targets.empty())
    return InvalidArgument("nothing to do: neither a tensor to fetch nor a node to run was given");
  std::unique_ptr<Graph> graph = graph_.Clone();
  if (options_.seed >= 0) Scatter(graph.get());
  PassContext context;
  absl::flat_hash_map<Endpoint, Endpoint> cuts;
  absl::flat_hash_set<Endpoint> fed;
  PartitionOptions partition;
  for (const auto& [name, value] : feeds) {
    MR_ASSIGN_OR_RETURN(Endpoint feed, graph->FindEndpoint(name));
    partition.feed_names.push_back(name);
    if (value.dtype() != BaseType(feed.dtype())) return Internal("the feed for ", name, " is of another type");
    if (!fed.insert(feed).second) return InvalidArgument("tensor ", name, " is fed twice");
    if (!feed.node->is_type("Placeholder")) {
      NodeSpec spec;
      spec.name = graph->UniqueName(absl::StrCat(feed.node->name(), "/_fed_", feed.index));
      spec.op = "Placeholder";
      spec.attrs["dtype"].set_type(static_cast<pb::DataType>(BaseType(feed.dtype())));
      MR_ASSIGN_OR_RETURN(Node * cut, graph->AddNode(std::move(spec)));
      cuts[feed] = cut->output(0);
      feed = cut->output(0);
    }
    context.feeds.push_back(feed);
  }
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (const auto it = cuts.find(node->input(i)); it != cuts.end()) graph->SetInput(node, i, it->second);
    }
  }
  for (const std::string& name : fetches) {
    MR_ASSIGN_OR_RETURN(Endpoint fetch, graph->FindEndpoint(name));
    if (fed.contains(fetch)) return InvalidArgument("tensor ", name, " is both fed and fetched");
    context.fetches.push_back(fetch);
    partition.fetch_names.push_back(name);
  }
  for (const std::string& name : targets) {
    Node* node = graph->FindNode(name);
    if (node == nullptr) return NotFound("target ", name, ": there is no node of that name in the graph");
    context.targets.push_back(node);
  }
  MR_RETURN_IF_ERROR(Prune(graph.get(), context));
  MR_RETURN_IF_ERROR(InlineFunctions(graph.get(), &context));
  if (options_.seed >= 0) Scatter(graph.get());
  PlacementOptions placement;
  for (const auto& task : tasks_) placement.devices.push_back(task->device().name());
  placement.default_device = tasks_[0]->name();
  placement.has_kernel = [](const Node& node, const std::string& type) {
    return node.is_type("NoOp") || KernelRegistry::Global().HasFor(node, type);
  };
  MR_RETURN_IF_ERROR(PlaceNodes(graph.get(), placement));

  for (const auto& task : tasks_) partition.incarnations[task->device().name()] = task->device().incarnation();
  if (options_.has_home) partition.home_task = tasks_[0]->name();
  partition.feeds = context.feeds;
  partition.fetches = context.fetches;
  MR_ASSIGN_OR_RETURN(std::vector<Part> parts, PartitionGraph(std::move(graph), partition));
  auto step = std::make_unique<Step>();
  for (Part& part : parts) {
    for (auto& task : tasks_) {
      if (task->name() == part.task) {
        MR_RETURN_IF_ERROR(WithPrefix(part.task + ": ", CompilePart(std::move(part), task.get(), step.get())));
        break;
      }
    }
  }
  return step;
}

Status SplitSession::CompilePart(Part part, Member* member, Step* step) {
  auto running = std::make_unique<Step::Running>();
  running->task = member->task.get();
  PassContext context;
  for (const auto& [index, tensor] : part.home_feeds) {
    running->feeds.push_back(index);
    context.feeds.push_back(tensor);
  }
  for (const auto& [index, tensor] : part.home_fetches) {
    running->fetches.push_back(index);
    context.fetches.push_back(tensor);
  }
  for (const ClientEdge& edge : part.feeds) running->feed_keys.emplace_back(edge.index, edge.key);
  for (const ClientEdge& edge : part.fetches) running->fetch_keys.emplace_back(edge.index, edge.key);
  context.targets = NodesNobodyUses(*part.graph);
  MR_ASSIGN_OR_RETURN(running->part,
                      member->task->Compile(member->session, std::move(part.graph), std::move(context), member->parts));
  step->parts.push_back(std::move(running));
  return absl::OkStatus();
}

Status SplitSession::Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                         absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata*) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Step> step, Compile(feeds, fetches, targets));
  const auto token = step->cancellation.NewToken();
  if (!step->cancellation.Register(token, [&] { step->rendezvous.Abort(step->cancellation.status()); })) {
    return Internal("a step that has not begun is cancelled");
  }
  TimerQueue::Id timer = 0;
  if (options.timeout != absl::InfiniteDuration()) {
    timer = TimerQueue::Real()->Schedule(
        options.timeout, [&] { step->cancellation.StartCancel(DeadlineExceeded("the step did not end in time")); });
  }
  const int64_t step_id = next_step_++;
  Mutex mu;
  CondVar ended;
  size_t left = step->parts.size();
  Status status;
  for (auto& owned : step->parts) {
    Step::Running* part = owned.get();
    part->rendezvous = std::make_unique<TaskRendezvous>(&step->rendezvous);
    for (const auto& [index, key] : part->feed_keys) part->rendezvous->Give(key, feeds[index].second);
    for (const int index : part->feeds) part->feed_values.push_back(feeds[index].second);
    part->fetch_values.resize(part->fetches.size());
  }
  for (auto& owned : step->parts) {
    Step::Running* part = owned.get();
    pool_.Schedule([&, part] {
      part->task->RunAsync(part->part,
                           {.step_id = step_id,
                            .feeds = part->feed_values,
                            .rendezvous = part->rendezvous.get(),
                            .cancellation = &step->cancellation},
                           absl::MakeSpan(part->fetch_values), [&](Status part_status) {
                             if (!part_status.ok()) step->cancellation.StartCancel(part_status);
                             MutexLock lock(&mu);
                             if (status.ok()) status = part_status;
                             if (--left == 0) ended.Signal();
                           });
    });
  }
  {
    MutexLock lock(&mu);
    while (left > 0) ended.Wait(&mu);
  }
  if (timer != 0) TimerQueue::Real()->Cancel(timer);
  if (status.ok()) {
    results->resize(fetches.size());
    for (auto& part : step->parts) {
      for (size_t i = 0; i < part->fetches.size(); ++i) (*results)[part->fetches[i]] = part->fetch_values[i];
      absl::flat_hash_map<std::string, Tensor> taken;
      for (const auto& [index, key] : part->fetch_keys) {
        if (!taken.contains(key)) {
          bool came = false;
          step->rendezvous.Recv(key, [&, index = index, &key = key](StatusOr<RendezvousItem> item) {
            came = true;
            if (!item.ok()) {
              status = item.status();
            } else if (item->is_dead) {
              status = Internal("the fetched tensor ", fetches[index], " is dead");
            } else {
              taken[key] = item->tensor;
            }
          });
          if (!came) return Internal("the step ended without sending ", key);
        }
        (*results)[index] = taken[key];
      }
    }
  }
  step->cancellation.Deregister(token);
  return status;
}

namespace {

class SplitSessions : public SessionFactory {
 public:
  bool Accepts(const std::string& target) const override { return absl::StartsWith(target, "split:"); }
  StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options) override {
    const std::vector<std::string> words = absl::StrSplit(options.target, ':');
    SplitOptions split;
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &split.tasks) || !absl::SimpleAtoi(words[2], &split.seed) ||
        split.tasks < 1) {
      return InvalidArgument("'", options.target, "' is not split:TASKS:SEED");
    }
    split.has_home = split.seed % 2 == 0;
    split.passes = options.passes;
    return std::make_unique<SplitSession>(split);
  }
};

}  // namespace

void RegisterSplitSessions() { SessionFactory::Register(std::make_unique<SplitSessions>()); }

}  // namespace millrace::split
