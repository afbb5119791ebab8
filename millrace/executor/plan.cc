#include "millrace/executor/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "millrace/executor/framed_run.h"
#include "millrace/executor/straight_run.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/variable.h"

namespace millrace {
namespace {

constexpr int kMaskBits = 64;

uint64_t Bit(int i) { return i < kMaskBits ? uint64_t{1} << i : 0; }

}  // namespace

Plan::Plan() = default;
Plan::~Plan() = default;

Status NodeError(const Node& node, const Device& device, const Status& status) {
  const absl::string_view message = status.message();
  // A status that already names a node travelled up from inside (a function, another task).
  if (absl::StrContains(message, "{{node ")) return status;
  std::string names = absl::StrJoin(node.origins(), "}}, {{node ");
  return Status(status.code(), absl::StrCat(message, "\n\t [[{{node ", names, "}}]] (", node.type(),
                                            " on ", device.name(), ")"));
}

StatusOr<Tensor> ReadReference(const Tensor& reference) {
  const ResourceHandle& handle = reference.scalar<ResourceHandle>();
  if (const auto* variable = dynamic_cast<const Variable*>(handle.resource.get())) return variable->Read();
  // The reference of a queue, table and the like reads as where it is kept.
  if (handle.resource && reference.dtype() == RefType(DType::kString)) {
    return Tensor::Of<std::string>({handle.container, handle.name});
  }
  return Internal("a reference does not point to a variable");
}

StatusOr<std::unique_ptr<Plan>> Plan::Compile(std::unique_ptr<Graph> graph,
                                              const PlanOptions& options) {
  std::unique_ptr<Plan> plan(new Plan);
  plan->graph_ = std::move(graph);
  MR_RETURN_IF_ERROR(plan->CompileNodes(options));
  MR_RETURN_IF_ERROR(plan->CompileSlots(options));
  // A value from another task may turn out to be dead, unless it is the client who sends it.
  const bool framed = std::any_of(plan->nodes_.begin(), plan->nodes_.end(), [](const PlanNode& n) {
    const bool is_recv = n.node->is_type("_Recv") || n.node->is_type("_HostRecv");
    return n.node->IsControlFlow() || (is_recv && !n.node->AttrOr<bool>("client_terminated", false));
  });
  if (framed) {
    MR_ASSIGN_OR_RETURN(plan->framed_, FramedPlan::Compile(*plan));
    return plan;
  }
  plan->CompileConstants();
  plan->CompileLastUses();
  int expensive = 0;
  bool async = false;
  for (const PlanNode& n : plan->nodes_) {
    expensive += n.is_expensive;
    async |= n.is_async;
  }
  plan->sequential_ = !async && expensive < 2;
  return plan;
}

Status Plan::CompileNodes(const PlanOptions& options) {
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph_));
  nodes_.reserve(order.size());
  kernels_.reserve(order.size());
  absl::flat_hash_map<const Node*, int> fed_outputs;
  for (const Endpoint& feed : options.feeds) ++fed_outputs[feed.node];
  for (const Node* node : order) {
    // A placeholder that is fed has nothing to run.
    if (auto it = fed_outputs.find(node); it != fed_outputs.end() && it->second == node->num_outputs()) {
      continue;
    }
    MR_ASSIGN_OR_RETURN(Device * device, options.device_of(*node));
    PlanNode n;
    n.node = node;
    n.device = device;
    n.num_inputs = node->num_inputs();
    n.num_outputs = node->num_outputs();
    if (!node->is_type("NoOp")) {
      StatusOr<std::shared_ptr<Kernel>> made =
          options.make_kernel != nullptr ? options.make_kernel(*node, device)
                                         : StatusOr<std::shared_ptr<Kernel>>(
                                               KernelRegistry::Global().Create(*node, device));
      MR_ASSIGN_OR_RETURN(std::shared_ptr<Kernel> kernel, std::move(made));
      n.kernel = kernel.get();
      n.is_async = kernel->is_async();
      n.is_expensive = kernel->is_expensive();
      kernels_.push_back(std::move(kernel));
    }
    max_inputs_ = std::max(max_inputs_, n.num_inputs);
    nodes_.push_back(n);
  }
  return absl::OkStatus();
}

Status Plan::CompileSlots(const PlanOptions& options) {
  std::vector<int> first_output(graph_->max_id(), -1);
  std::vector<int> position(graph_->max_id(), -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].first_output = num_slots_;
    first_output[nodes_[i].node->id()] = num_slots_;
    position[nodes_[i].node->id()] = static_cast<int>(i);
    num_slots_ += nodes_[i].num_outputs;
  }
  absl::flat_hash_map<Endpoint, int> fed;
  for (const Endpoint& feed : options.feeds) {
    feed_slots_.push_back(num_slots_);
    fed[feed] = num_slots_++;
  }
  slot_uses_.assign(num_slots_, 0);
  const auto slot_of = [&](const Endpoint& e) {
    if (!fed.empty()) {
      if (auto it = fed.find(e); it != fed.end()) return it->second;
    }
    return first_output[e.node->id()] + e.index;
  };
  std::vector<std::vector<int>> successors(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    PlanNode& n = nodes_[i];
    n.first_input = static_cast<int>(input_slots_.size());
    for (int k = 0; k < n.num_inputs; ++k) {
      const Endpoint source = n.node->input(k);
      const int slot = slot_of(source);
      const bool is_fed = !fed.empty() && fed.contains(source);
      if (!is_fed && position[source.node->id()] < 0) {
        return Internal("node ", n.node->name(), " takes ", source.name(), ", which the plan has not");
      }
      input_slots_.push_back(slot);
      ++slot_uses_[slot];
      if (!is_fed) {
        if (IsRef(source.dtype()) && !IsRef(n.node->input_type(k))) {
          if (k >= kMaskBits) {
            return Unimplemented("node ", n.node->name(), " takes a reference as input ", k,
                                 "; only the first ", kMaskBits, " inputs may be references");
          }
          n.deref |= Bit(k);
        }
        successors[position[source.node->id()]].push_back(static_cast<int>(i));
        ++n.num_pending;
      }
    }
    for (const Node* before : n.node->control_inputs()) {
      if (position[before->id()] < 0) continue;
      successors[position[before->id()]].push_back(static_cast<int>(i));
      ++n.num_pending;
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].first_successor = static_cast<int>(successors_.size());
    nodes_[i].num_successors = static_cast<int>(successors[i].size());
    successors_.insert(successors_.end(), successors[i].begin(), successors[i].end());
  }
  fetches_ = options.fetches;
  for (const Endpoint& fetch : options.fetches) {
    fetch_slots_.push_back(slot_of(fetch));
    ++slot_uses_[fetch_slots_.back()];
  }
  return absl::OkStatus();
}

// Constants are read from their kernels once; their slots keep the value from run to run.
void Plan::CompileConstants() {
  for (PlanNode& n : nodes_) {
    if (!n.node->is_type("Const") || n.kernel == nullptr || !n.node->control_inputs().empty()) continue;
    KernelContext ctx;
    KernelContextAccess access(ctx);
    StepContext step;
    Tensor value;
    access.Set(n.node, n.device, n.device->allocator(), &step);
    access.SetInputs(nullptr, 0, 0);
    access.SetOutputs(&value, 1);
    if (!n.kernel->Compute(ctx).ok()) continue;  // it will say so when it runs
    constants_.emplace_back(n.first_output, std::move(value));
    n.kernel = nullptr;
    ++slot_uses_[n.first_output];  // never released, never written over
  }
}

void Plan::CompileLastUses() {
  std::vector<int> last_user(num_slots_, -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const PlanNode& n = nodes_[i];
    for (int k = 0; k < n.num_inputs; ++k) last_user[input_slots_[n.first_input + k]] = static_cast<int>(i);
    for (int k = 0; k < n.num_outputs; ++k) {
      if (last_user[n.first_output + k] < 0) last_user[n.first_output + k] = static_cast<int>(i);
    }
  }
  std::vector<bool> kept(num_slots_, false);
  for (const int slot : fetch_slots_) kept[slot] = true;
  for (const auto& [slot, value] : constants_) kept[slot] = true;
  std::vector<std::vector<int>> releases(nodes_.size());
  for (int slot = 0; slot < num_slots_; ++slot) {
    if (!kept[slot] && last_user[slot] >= 0) releases[last_user[slot]].push_back(slot);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    PlanNode& n = nodes_[i];
    n.first_release = static_cast<int>(releases_.size());
    n.num_releases = static_cast<int>(releases[i].size());
    releases_.insert(releases_.end(), releases[i].begin(), releases[i].end());
    for (int k = 0; k < std::min(n.num_inputs, kMaskBits); ++k) {
      const int slot = input_slots_[n.first_input + k];
      if (kept[slot] || last_user[slot] != static_cast<int>(i)) continue;
      // The same tensor twice (x * x): its memory may not be taken for one and read as the other.
      int times = 0;
      for (int j = 0; j < n.num_inputs; ++j) times += input_slots_[n.first_input + j] == slot;
      if (times == 1) n.last_use |= Bit(k);
    }
  }
}

}  // namespace millrace
