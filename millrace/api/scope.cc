#include "millrace/api/scope.h"

#include "millrace/api/output.h"
#include "millrace/api/replica.h"
#include "millrace/api/scope_state.h"
#include "millrace/graph/device_name.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

using api_internal::GraphState;
using api_internal::ScopeSettings;
using api_internal::VariableNames;
using api_internal::VariableSettings;

// TensorFlow's graph seed if only the op has a seed.
constexpr int64_t kDefaultGraphSeed = 87654321;

std::string Join(const std::string& prefix, absl::string_view name) {
  return prefix.empty() ? std::string(name) : absl::StrCat(prefix, "/", name);
}

// The names of variables in a sub-scope.
VariableNames SubNames(const VariableNames& outer, absl::string_view name, bool is_default) {
  std::string chosen(name);
  for (int n = 1; is_default && outer.opened->contains(chosen); ++n) chosen = absl::StrCat(name, "_", n);
  outer.opened->insert(chosen);
  return {.prefix = Join(outer.prefix, chosen),
          .reuse = outer.reuse,
          .opened = std::make_shared<absl::flat_hash_set<std::string>>()};
}

// The node that owns the state that `node` uses; null if it takes no handle.
const Node* OwnerOfState(const Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (IsRef(node.input_type(i)) || node.input_type(i) == DType::kResource) return node.input(i).node;
  }
  return nullptr;
}

}  // namespace

Status api_internal::AskForDevice(const ScopeSettings& settings, Node* node) {
  Graph& graph = settings.state->graph;
  for (const std::string& name : settings.colocate_with) {
    if (const Node* other = graph.FindNode(name)) {
      graph.SetRequestedDevice(node, other->requested_device());
      return absl::OkStatus();
    }
  }
  if (const Node* owner = OwnerOfState(*node); owner != nullptr && !owner->requested_device().empty()) {
    graph.SetRequestedDevice(node, owner->requested_device());
    return absl::OkStatus();
  }
  graph.SetRequestedDevice(node, settings.device);
  for (auto it = settings.device_functions.rbegin(); it != settings.device_functions.rend(); ++it) {
    const StatusOr<DeviceName> inner = DeviceName::Parse(it->choose(*node));
    if (!inner.ok()) {
      return InvalidArgument("{{node ", node->name(), "}} (op ", node->type(),
                             "): the scope's device function gave a malformed device: ", inner.status().message());
    }
    MR_ASSIGN_OR_RETURN(const DeviceName outer, DeviceName::Parse(it->outer_device));
    graph.SetRequestedDevice(node, inner->Over(outer).ToString());
  }
  return absl::OkStatus();
}

template <typename Change>
Scope Scope::Changed(Change change) const {
  auto settings = std::make_shared<ScopeSettings>(*settings_);
  change(*settings);
  return Scope(std::move(settings));
}

Scope api_internal::ScopeAccess::WithTakenName(const Scope& scope, absl::string_view full_name) {
  return scope.Changed([&](ScopeSettings& s) { s.taken_name = std::string(full_name); });
}

Scope Scope::NewRoot() {
  auto settings = std::make_shared<ScopeSettings>();
  settings->state = std::make_shared<GraphState>();
  return Scope(std::move(settings));
}

GraphState& Scope::state() const { return *settings_->state; }
Graph* Scope::graph() const { return &state().graph; }
const std::string& Scope::prefix() const { return settings_->prefix; }
const std::string& Scope::op_name() const { return settings_->op_name; }
const std::string& Scope::device() const { return settings_->device; }
const Status& Scope::status() const { return state().status; }

void Scope::UpdateStatus(const Status& status) const {
  if (state().status.ok()) state().status = status;
}

std::string Scope::TakeName(absl::string_view name) const {
  const std::string base = Join(prefix(), name);
  auto& names = state().names;
  int& uses = names[base];
  if (uses == 0 && graph()->FindNode(base) == nullptr) {
    uses = 1;
    return base;
  }
  int n = std::max(uses, 1);
  std::string candidate;
  do {
    candidate = absl::StrCat(base, "_", n++);
  } while (names.contains(candidate) || graph()->FindNode(candidate) != nullptr);
  uses = n;
  names[candidate] = 1;
  return candidate;
}

Scope Scope::Inside(absl::string_view name, bool is_default) const {
  if (!IsValidNodeName(Join(prefix(), name))) {
    UpdateStatus(
        InvalidArgument("'", name, "' is not a valid scope name in '", prefix(),
                        "': names consist of letters, digits and _.\\-/ and begin with a letter, a digit or a dot"));
    return WithoutOpName();
  }
  return Changed([&](ScopeSettings& s) {
    s.prefix = TakeName(name);
    s.op_name.clear();
    s.taken_name.clear();
    if (s.variable_names() != nullptr) {
      s.ChangeVariables([&](VariableSettings& v) { v.names = SubNames(*v.names, name, is_default); });
    }
  });
}

Scope Scope::SubScope(absl::string_view name) const { return Inside(name, false); }

Scope Scope::VariableScope(absl::string_view name, Reuse reuse) const {
  const Scope named = settings_->variable_names() != nullptr ? *this : WithReuse(Reuse::kNo);
  const Scope inside = named.SubScope(name);
  if (reuse == Reuse::kNo) return inside;
  return inside.Changed(
      [&](ScopeSettings& s) { s.ChangeVariables([&](VariableSettings& v) { v.names->reuse = reuse; }); });
}

Scope Scope::WithReuse(Reuse reuse) const {
  return Changed([&](ScopeSettings& s) {
    VariableNames names = s.variable_names() != nullptr ? *s.variable_names() : VariableNames{.prefix = s.prefix};
    if (reuse != Reuse::kNo) names.reuse = reuse;
    names.opened = std::make_shared<absl::flat_hash_set<std::string>>();
    s.ChangeVariables([&](VariableSettings& v) { v.names = std::move(names); });
  });
}

Scope Scope::WithVariableGetter(VariableFunction get) const {
  if (get == nullptr) UpdateStatus(InvalidArgument("the variable getter of scope '", prefix(), "' is null"));
  return Changed(
      [&](ScopeSettings& s) { s.ChangeVariables([&](VariableSettings& v) { v.getters.push_back(std::move(get)); }); });
}

Scope Scope::WithVariableCreator(VariableFunction create) const {
  if (create == nullptr) UpdateStatus(InvalidArgument("the variable creator of scope '", prefix(), "' is null"));
  return Changed([&](ScopeSettings& s) {
    s.ChangeVariables([&](VariableSettings& v) { v.creators.push_back(std::move(create)); });
  });
}

Scope Scope::WithPartitioner(Partitioner partitioner) const {
  return Changed([&](ScopeSettings& s) {
    s.ChangeVariables([&](VariableSettings& v) { v.partitioner = std::move(partitioner); });
  });
}

Scope Scope::WithPrefix(absl::string_view prefix) const {
  return Changed([&](ScopeSettings& s) {
    s.prefix = std::string(prefix);
    s.op_name.clear();
    s.taken_name.clear();
    if (s.variable_names() != nullptr) s.ChangeVariables([](VariableSettings& v) { v.names.reset(); });
  });
}

Scope Scope::WithOpName(absl::string_view name) const {
  if (!IsValidNodeName(Join(prefix(), name))) {
    UpdateStatus(
        InvalidArgument("'", name, "' is not a valid op name in '", prefix(),
                        "': names consist of letters, digits and _.\\-/ and begin with a letter, a digit or a dot"));
    return WithoutOpName();
  }
  return Changed([&](ScopeSettings& s) { s.op_name = std::string(name); });
}

Scope Scope::WithoutOpName() const {
  if (op_name().empty() && settings_->taken_name.empty()) return *this;
  return Changed([](ScopeSettings& s) {
    s.op_name.clear();
    s.taken_name.clear();
  });
}

Scope Scope::ForComposite(absl::string_view fallback) const {
  return op_name().empty() ? Inside(fallback, true) : Inside(op_name(), false);
}

Scope Scope::WithDevice(absl::string_view device) const {
  StatusOr<DeviceName> inner = DeviceName::Parse(device);
  if (!inner.ok()) {
    UpdateStatus(::millrace::WithPrefix("in scope '" + prefix() + "': ", inner.status()));
    return *this;
  }
  StatusOr<DeviceName> outer = DeviceName::Parse(this->device());
  return Changed(
      [&](ScopeSettings& s) { s.device = outer.ok() ? inner->Over(*outer).ToString() : std::string(device); });
}

Scope Scope::WithDeviceFunction(DeviceFunction choose) const {
  return Changed([&](ScopeSettings& s) {
    s.device_functions.push_back({std::move(choose), std::move(s.device)});
    s.device.clear();
  });
}

Scope Scope::WithoutDevice() const {
  return Changed([](ScopeSettings& s) {
    s.device.clear();
    s.device_functions.clear();
  });
}

Scope Scope::WithControlDependencies(const std::vector<Operation>& ops) const {
  return Changed([&](ScopeSettings& s) {
    for (const Operation& op : ops) {
      if (op.node() == nullptr) {
        UpdateStatus(InvalidArgument("a control dependency in scope '", prefix(), "' is empty"));
      } else if (&op.scope().state() != &state()) {
        UpdateStatus(InvalidArgument("the control dependency ", op.name(), " in scope '", prefix(),
                                     "' belongs to another graph"));
      } else if (std::find(s.control_inputs.begin(), s.control_inputs.end(), op.node()) == s.control_inputs.end()) {
        s.control_inputs.push_back(op.node());
      }
    }
  });
}

Scope Scope::WithoutControlDependencies() const {
  return Changed([](ScopeSettings& s) { s.control_inputs.clear(); });
}

Scope Scope::ColocateWith(const Operation& op) const {
  if (op.node() == nullptr || &op.scope().state() != &state()) {
    UpdateStatus(
        InvalidArgument("cannot colocate in scope '", prefix(), "' with ",
                        op.node() == nullptr ? "an empty operation" : op.name() + ", which is of another graph"));
    return *this;
  }
  return Changed([&](ScopeSettings& s) { s.colocate_with = {op.name()}; });
}

StatusOr<pb::GraphDef> Scope::ToGraphDef() const {
  MR_RETURN_IF_ERROR(status());
  return ExportGraphDef(*graph());
}

void Scope::SetRandomSeed(int64_t seed) const { state().random_seed = seed; }

std::pair<int64_t, int64_t> Scope::OpSeeds(std::optional<int64_t> op_seed) const {
  const std::optional<int64_t>& graph_seed = state().random_seed;
  if (!graph_seed && !op_seed) return {0, 0};
  const auto usual = [this]() -> int64_t {
    if (!settings_->seeds_by_name) return graph()->num_nodes();
    const std::string name = api_internal::StableName(*settings_);
    const int earlier = state().seed_names[name]++;
    return api_internal::HashOfName(earlier == 0 ? name : absl::StrCat(name, "#", earlier));
  };
  std::pair<int64_t, int64_t> seeds = {graph_seed.value_or(kDefaultGraphSeed), op_seed ? *op_seed : usual()};
  // Two zeros would mean "no seed".
  if (seeds.first == 0 && seeds.second == 0) seeds.second = INT32_MAX;
  return seeds;
}

}  // namespace millrace
