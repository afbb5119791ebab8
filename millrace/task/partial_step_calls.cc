#include "millrace/task/partial_step_calls.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

// A _Recv or _Send whose other end is the caller.
NodeSpec ClientNode(Graph* graph, const char* op, const std::string& tensor, const std::string& device,
                    uint64_t incarnation) {
  const auto text = [](const std::string& s) {
    pb::AttrValue value;
    value.set_s(s);
    return value;
  };
  NodeSpec spec;
  spec.op = op;
  spec.name = graph->UniqueName(std::string("client") + op);
  spec.attrs.insert({"tensor_name", text(tensor)});
  spec.attrs.insert({"send_device", text(device)});
  spec.attrs.insert({"recv_device", text(device)});
  pb::AttrValue number, client;
  number.set_i(static_cast<int64_t>(incarnation));
  client.set_b(true);
  spec.attrs.insert({"send_device_incarnation", number});
  spec.attrs.insert({"client_terminated", client});
  return spec;
}

}  // namespace

std::string PartialStepCalls::KeyOf(const std::string& tensor) const {
  return absl::StrFormat("%s;%016x;%s;%s;0:0", device_, incarnation_, device_, tensor);
}

StatusOr<std::unique_ptr<PartialStepCalls>> PartialStepCalls::Prepare(Graph* graph, const CallableSpec& spec,
                                                                      const std::string& device, uint64_t incarnation,
                                                                      std::vector<std::string>* targets) {
  if (spec.fetches.empty() && spec.targets.empty()) {
    return InvalidArgument("nothing to do: neither a tensor to fetch nor a node to run was given");
  }
  std::unique_ptr<PartialStepCalls> calls(new PartialStepCalls(device, incarnation));
  MutexLock lock(&calls->mu_);
  absl::flat_hash_map<const Node*, std::string> recv_names;
  for (const std::string& name : spec.feeds) {
    MR_ASSIGN_OR_RETURN(const Endpoint feed, graph->FindEndpoint(name));
    NodeSpec node = ClientNode(graph, "_Recv", name, device, incarnation);
    node.attrs["tensor_type"].set_type(static_cast<pb::DataType>(BaseType(feed.dtype())));
    MR_ASSIGN_OR_RETURN(Node * recv, graph->AddNode(std::move(node)));
    graph->SetAssignedDevice(recv, device);
    recv_names[recv] = name;
    for (Node* user : graph->nodes()) {
      for (int i = 0; i < user->num_inputs(); ++i) {
        if (user->input(i) == feed) graph->SetInput(user, i, recv->output(0));
      }
    }
    calls->feed_types_[name] = BaseType(feed.dtype());
    if (!calls->open_feeds_.insert(name).second) return InvalidArgument("tensor ", name, " is fed twice");
  }
  targets->assign(spec.targets.begin(), spec.targets.end());
  for (const std::string& name : spec.fetches) {
    MR_ASSIGN_OR_RETURN(const Endpoint fetch, graph->FindEndpoint(name));
    if (calls->open_feeds_.contains(name)) return InvalidArgument("tensor ", name, " is both fed and fetched");
    std::vector<const Node*> stack = {fetch.node};
    absl::flat_hash_set<const Node*> seen = {fetch.node};
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (auto it = recv_names.find(node); it != recv_names.end()) calls->needs_[name].insert(it->second);
      const auto visit = [&](const Node* n) {
        if (seen.insert(n).second) stack.push_back(n);
      };
      for (const Endpoint& in : node->inputs()) visit(in.node);
      for (const Node* before : node->control_inputs()) visit(before);
    }
    NodeSpec node = ClientNode(graph, "_Send", name, device, incarnation);
    node.inputs = {fetch};
    MR_ASSIGN_OR_RETURN(Node * send, graph->AddNode(std::move(node)));
    graph->SetAssignedDevice(send, device);
    targets->push_back(send->name());
    calls->open_fetches_.insert(name);
  }
  return calls;
}

Status PartialStepCalls::Begin(absl::Span<const Feed> feeds, absl::Span<const std::string> fetches, bool* last) {
  MutexLock lock(&mu_);
  for (const auto& [name, value] : feeds) {
    const auto type = feed_types_.find(name);
    if (type == feed_types_.end())
      return InvalidArgument("The feed ", name, " was not specified in partial_run_setup.");
    if (!open_feeds_.contains(name)) return InvalidArgument("The feed ", name, " has already been fed.");
    if (value.dtype() != type->second) {
      return InvalidArgument("the feed for ", name, " is ", DTypeName(value.dtype()), ", but ", DTypeName(type->second),
                             " is expected");
    }
  }
  absl::flat_hash_set<std::string> still_open = open_feeds_;
  for (const auto& [name, value] : feeds) still_open.erase(name);
  for (const std::string& name : fetches) {
    if (!open_fetches_.contains(name)) {
      return InvalidArgument("The fetch ", name,
                             " has already been fetched, or it was not specified in partial_run_setup.");
    }
    for (const std::string& need : needs_[name]) {
      if (still_open.contains(need)) {
        return InvalidArgument("fetch ", name, " needs the feed ", need, ", which has not been given yet");
      }
    }
  }
  for (const auto& [name, value] : feeds) open_feeds_.erase(name);
  for (const std::string& name : fetches) open_fetches_.erase(name);
  *last = open_fetches_.empty() && open_feeds_.empty();
  return absl::OkStatus();
}

}  // namespace millrace
