// Steps in several calls.
//
// The step's graph gets a _Recv in place of each feed and a _Send behind each fetch; it runs as any
// other, waiting where a feed has not come, and the calls meet it at a rendezvous.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/session/running_step.h"

namespace millrace {
namespace {

std::string KeyOf(absl::string_view device, uint64_t incarnation, absl::string_view tensor) {
  return absl::StrFormat("%s;%016x;%s;%s;0:0", device, incarnation, device, tensor);
}

// A _Recv or _Send whose other end is the caller.
NodeSpec ClientEdge(Graph* graph, const char* op, const std::string& tensor, const Device& device) {
  const auto text = [](const std::string& s) {
    pb::AttrValue value;
    value.set_s(s);
    return value;
  };
  NodeSpec spec;
  spec.op = op;
  spec.name = graph->UniqueName(std::string("client") + op);
  spec.attrs.insert({"tensor_name", text(tensor)});
  spec.attrs.insert({"send_device", text(device.name())});
  spec.attrs.insert({"recv_device", text(device.name())});
  pb::AttrValue incarnation, client;
  incarnation.set_i(static_cast<int64_t>(device.incarnation()));
  client.set_b(true);
  spec.attrs.insert({"send_device_incarnation", incarnation});
  spec.attrs.insert({"client_terminated", client});
  return spec;
}

}  // namespace

struct DirectSession::PartialStep {
  explicit PartialStep(DirectSession* session) : running(session) {}

  std::unique_ptr<Plan> plan;
  // For each fetch, the feeds it needs.
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>> needs;
  absl::flat_hash_map<std::string, DType> feed_types;

  RunningStep running;
  LocalRendezvous rendezvous;
  StepResources step_resources;
  StepContext step;
  RefPtr<StepArena> arena = MakeRef<StepArena>();
  Notification ended;

  Mutex mu;
  absl::flat_hash_set<std::string> open_feeds ABSL_GUARDED_BY(mu);
  absl::flat_hash_set<std::string> open_fetches ABSL_GUARDED_BY(mu);
  Status status ABSL_GUARDED_BY(mu);
};

StatusOr<std::string> DirectSession::PartialRunSetup(absl::Span<const std::string> feeds,
                                                     absl::Span<const std::string> fetches,
                                                     absl::Span<const std::string> targets) {
  if (fetches.empty() && targets.empty()) {
    return InvalidArgument("nothing to do: neither a tensor to fetch nor a node to run was given");
  }
  auto partial = std::make_shared<PartialStep>(this);
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    graph = graph_.Clone();
  }
  absl::flat_hash_set<std::string> open_feeds;
  absl::flat_hash_set<std::string> open_fetches;
  absl::flat_hash_map<const Node*, std::string> recv_names;
  for (const std::string& name : feeds) {
    MR_ASSIGN_OR_RETURN(const Endpoint feed, graph->FindEndpoint(name));
    NodeSpec spec = ClientEdge(graph.get(), "_Recv", name, *devices_[0]);
    spec.attrs["tensor_type"].set_type(static_cast<pb::DataType>(BaseType(feed.dtype())));
    MR_ASSIGN_OR_RETURN(Node * recv, graph->AddNode(std::move(spec)));
    recv_names[recv] = name;
    for (Node* node : graph->nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (node->input(i) == feed) graph->SetInput(node, i, recv->output(0));
      }
    }
    partial->feed_types[name] = BaseType(feed.dtype());
    if (!open_feeds.insert(name).second) return InvalidArgument("tensor ", name, " is fed twice");
  }
  std::vector<std::string> all_targets(targets.begin(), targets.end());
  for (const std::string& name : fetches) {
    MR_ASSIGN_OR_RETURN(const Endpoint fetch, graph->FindEndpoint(name));
    if (open_feeds.contains(name)) return InvalidArgument("tensor ", name, " is both fed and fetched");
    // Which feeds stand behind it.
    std::vector<const Node*> stack = {fetch.node};
    absl::flat_hash_set<const Node*> seen = {fetch.node};
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (auto it = recv_names.find(node); it != recv_names.end()) partial->needs[name].insert(it->second);
      const auto visit = [&](const Node* n) {
        if (seen.insert(n).second) stack.push_back(n);
      };
      for (const Endpoint& in : node->inputs()) visit(in.node);
      for (const Node* before : node->control_inputs()) visit(before);
    }
    NodeSpec spec = ClientEdge(graph.get(), "_Send", name, *devices_[0]);
    spec.inputs = {fetch};
    MR_ASSIGN_OR_RETURN(Node * send, graph->AddNode(std::move(spec)));
    all_targets.push_back(send->name());
    open_fetches.insert(name);
  }
  {
    MutexLock lock(&partial->mu);
    partial->open_feeds = std::move(open_feeds);
    partial->open_fetches = std::move(open_fetches);
  }
  MR_ASSIGN_OR_RETURN(partial->plan, CompilePlan(std::move(graph), {.targets = all_targets}));
  MR_RETURN_IF_ERROR(partial->running.Begin({}, absl::InfiniteDuration()));
  partial->step = NewStep(partial->running, &partial->step_resources);
  partial->step.inter_op = InterOpPool();
  partial->step.rendezvous = &partial->rendezvous;
  // Waiting feeds and fetches end with the step.
  const bool registered = partial->running.cancellation()->Register(
      partial->running.cancellation()->NewToken(),
      [p = partial.get()] { p->rendezvous.Abort(Cancelled("the partial run was cancelled")); });
  if (!registered) return Cancelled("the session is closed");
  std::string handle;
  {
    MutexLock lock(&steps_mu_);
    handle = absl::StrCat(next_partial_++);
    partial_steps_[handle] = partial;
  }
  partial->plan->RunAsync({.step = &partial->step, .allocator = partial->arena.get()}, {},
                          [p = partial.get()](Status status) {
                            if (!status.ok()) p->rendezvous.Abort(status);
                            {
                              MutexLock lock(&p->mu);
                              p->status = std::move(status);
                            }
                            p->ended.Notify();
                          });
  return handle;
}

std::shared_ptr<DirectSession::PartialStep> DirectSession::FindPartialStep(const std::string& handle) {
  MutexLock lock(&steps_mu_);
  const auto it = partial_steps_.find(handle);
  return it == partial_steps_.end() ? nullptr : it->second;
}

Status DirectSession::PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                                 absl::Span<const std::string> fetches, std::vector<Tensor>* results) {
  const std::shared_ptr<PartialStep> partial = FindPartialStep(handle);
  if (partial == nullptr) {
    return InvalidArgument("there is no partial run '", handle, "': it has ended or was never set up");
  }
  const std::string& device = devices_[0]->name();
  const uint64_t incarnation = devices_[0]->incarnation();
  bool last = false;
  {
    MutexLock lock(&partial->mu);
    for (const auto& [name, value] : feeds) {
      const auto type = partial->feed_types.find(name);
      if (type == partial->feed_types.end()) return InvalidArgument("feed ", name, " was not set up for this partial run");
      if (!partial->open_feeds.contains(name)) return InvalidArgument("feed ", name, " was given before");
      if (value.dtype() != type->second) {
        return InvalidArgument("the feed for ", name, " is ", DTypeName(value.dtype()), ", but ",
                               DTypeName(type->second), " is expected");
      }
    }
    absl::flat_hash_set<std::string> still_open = partial->open_feeds;
    for (const auto& [name, value] : feeds) still_open.erase(name);
    for (const std::string& name : fetches) {
      if (!partial->open_fetches.contains(name)) {
        return InvalidArgument("fetch ", name, " was not set up for this partial run, or was fetched before");
      }
      for (const std::string& need : partial->needs[name]) {
        if (still_open.contains(need)) {
          return InvalidArgument("fetch ", name, " needs the feed ", need, ", which has not been given yet");
        }
      }
    }
    for (const auto& [name, value] : feeds) partial->open_feeds.erase(name);
    for (const std::string& name : fetches) partial->open_fetches.erase(name);
    last = partial->open_fetches.empty() && partial->open_feeds.empty();
  }
  Status status;
  for (const auto& [name, value] : feeds) {
    if (status.ok()) status = partial->rendezvous.Send(KeyOf(device, incarnation, name), {value, false});
  }
  results->assign(fetches.size(), Tensor());
  for (size_t i = 0; status.ok() && i < fetches.size(); ++i) {
    Notification came;
    partial->rendezvous.Recv(KeyOf(device, incarnation, fetches[i]), [&](StatusOr<RendezvousItem> item) {
      if (!item.ok()) {
        status = item.status();
      } else if (item->is_dead) {
        status = Internal("the fetched tensor ", fetches[i], " is dead: its branch was not taken");
      } else {
        (*results)[i] = std::move(item->tensor);
      }
      came.Notify();
    });
    came.Wait();
  }
  if (!status.ok() || last) {
    if (!status.ok()) partial->running.cancellation()->StartCancel(status);
    partial->ended.Wait();
    MutexLock partial_lock(&partial->mu);
    if (status.ok()) status = partial->status;
    MutexLock lock(&steps_mu_);
    partial_steps_.erase(handle);
  }
  return status;
}

Status DirectSession::Close() {
  absl::flat_hash_map<std::string, std::shared_ptr<PartialStep>> partial;
  {
    MutexLock lock(&steps_mu_);
    closed_ = true;
    partial.swap(partial_steps_);
  }
  CancelRunningSteps();
  for (auto& [handle, step] : partial) step->ended.Wait();
  partial.clear();
  MutexLock lock(&steps_mu_);
  while (running_ != nullptr) step_ended_.Wait(&steps_mu_);
  return absl::OkStatus();
}

}  // namespace millrace
