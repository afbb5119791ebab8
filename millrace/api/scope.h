// Scope: the graph that ops are added to, with a name prefix, a device and control dependencies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/graph/graph.h"
#include "millrace/proto/graph.pb.h"

namespace millrace {

class Operation;
class Output;
class Scope;
class Var;
struct VariableRequest;  // variable.h
namespace api_internal {
struct GraphState;
struct ScopeAccess;
struct ScopeSettings;
}  // namespace api_internal

// Chooses the device of a new node. node.requested_device() is the device set by inner scopes; the result replaces it.
using DeviceFunction = std::function<std::string(const Node& node)>;

// What a variable scope does with the name of a variable that was made before.
enum class Reuse {
  kNo,    // a variable is made; ALREADY_EXISTS if there is one of that name
  kYes,   // the variable of that name is used again; NOT_FOUND if there is none
  kAuto,  // it is used again if it is there, and made otherwise
};

// Makes a variable, or replaces the one that `next` returns. `next` does what would happen without this function: it
// may be called with a changed request (another name, another initial value) or in a changed scope (another device),
// several times or never. `scope` is the scope that asked, without this function.
using NextVariable = std::function<Var(const Scope& scope, const VariableRequest& request)>;
using VariableFunction =
    std::function<Var(const Scope& scope, const VariableRequest& request, const NextVariable& next)>;

// Returns the number of parts along each dimension of a variable; at most one of them may exceed 1. See
// partitioned_variable.h.
using Partitioner = std::function<std::vector<int64_t>(const Shape& shape, DType dtype)>;

// Cheap to copy: copies share the graph. Every op builder takes a Scope as its first argument.
//
//   Scope root = Scope::NewRoot();
//   Scope layer = root.SubScope("layer1");            // names start with "layer1/"
//   Output y = ops::MatMul(layer.WithOpName("logits"), x, w);   // "layer1/logits"
//
// The first error is sticky for all scopes of the graph: later calls add nothing and return empty outputs, and status()
// returns that error, naming the node and the op. Not thread-safe: a graph must be built by one thread at a time.
class Scope {
 public:
  // Creates a new graph.
  static Scope NewRoot();

  // Prefixes names with `name/`; a second scope of that name becomes name_1.
  Scope SubScope(absl::string_view name) const;
  // Names the nodes built next `name`, made unique by a suffix.
  Scope WithOpName(absl::string_view name) const;
  // Sets the device of ops. Fields that `device` leaves open are taken from the scope's current device.
  Scope WithDevice(absl::string_view device) const;
  // Chooses the device of each op as it is built: see replica_device_setter.h. Fields that the result leaves open are
  // taken from the scope's current device.
  Scope WithDeviceFunction(DeviceFunction choose) const;
  // Clears the device and the device functions of outer scopes.
  Scope WithoutDevice() const;
  // Makes new ops run after `ops` (Operations or Outputs), in addition to existing control dependencies.
  Scope WithControlDependencies(const std::vector<Operation>& ops) const;
  Scope WithoutControlDependencies() const;
  // Places new ops on the device of `op`.
  Scope ColocateWith(const Operation& op) const;

  // Variables by name, as TensorFlow's variable_scope. Nodes are in SubScope(name), which may get a suffix, but the
  // names of variables begin with `name` itself, so that another scope of that name has the same variables; `reuse`
  // says whether it may. A sub-scope is then a variable scope too, with the same reuse; so is a layer, and layers
  // without a name are counted from the beginning (dense, dense_1) in each scope that this returns. Inside a scope with
  // kYes or kAuto, kNo inherits that, as in TensorFlow.
  //
  //   for (const Output& x : towers) Model(root.VariableScope("model", Reuse::kAuto), x);   // one set of weights
  //
  // Reuse with another shape or type fails with INVALID_ARGUMENT, showing both. Outside of variable scopes every Var
  // makes a new variable, whose name gets a suffix if it is taken. WithPrefix leaves the variable scope.
  Scope VariableScope(absl::string_view name, Reuse reuse = Reuse::kNo) const;
  // The same without a name of its own: the variables of this scope, by name.
  Scope WithReuse(Reuse reuse) const;
  // Called for each variable that is asked for in the scope, whether it is made or used again; the innermost first.
  // TensorFlow's custom_getter.
  Scope WithVariableGetter(VariableFunction get) const;
  // Called for each variable that is made in the scope, the innermost first. TensorFlow's variable_creator_scope.
  Scope WithVariableCreator(VariableFunction create) const;
  // Partitions the weights of layers, and each PartitionedVar without a partitioner of its own; a Var stays whole. Null
  // ends it.
  Scope WithPartitioner(Partitioner partitioner) const;

  // For functions that add several nodes: a sub-scope with the name set by WithOpName, or `fallback`.
  Scope ForComposite(absl::string_view fallback) const;
  // The same settings with exactly this name prefix; "" for the top level.
  Scope WithPrefix(absl::string_view prefix) const;

  Graph* graph() const;
  const std::string& prefix() const;   // "a/b"; empty at the top level
  const std::string& op_name() const;  // as set by WithOpName
  const std::string& device() const;

  const Status& status() const;
  bool ok() const { return status().ok(); }
  // Records an error unless there is one already; for functions built on the op builders.
  void UpdateStatus(const Status& status) const;

  StatusOr<pb::GraphDef> ToGraphDef() const;

  // Makes the random ops built from now on reproducible. As in TensorFlow, an op's seeds are derived from this one and
  // from the op's own seed or, without one, from the number of nodes built before it.
  void SetRandomSeed(int64_t seed) const;
  // The attrs `seed` and `seed2` of a random op with the given seed. (0, 0), which means non-deterministic, if neither
  // the op nor the graph has a seed.
  std::pair<int64_t, int64_t> OpSeeds(std::optional<int64_t> op_seed = std::nullopt) const;

  // The same settings without the name set by WithOpName.
  Scope WithoutOpName() const;

 private:
  friend class Operation;
  friend class Output;
  friend struct api_internal::ScopeAccess;  // for the front end itself: see scope_state.h
  Scope() = default;
  explicit Scope(std::shared_ptr<const api_internal::ScopeSettings> settings) : settings_(std::move(settings)) {}

  api_internal::GraphState& state() const;
  std::string TakeName(absl::string_view name) const;
  // SubScope; in a variable scope, a name that is a default gets a suffix if it was used before.
  Scope Inside(absl::string_view name, bool is_default) const;
  template <typename Change>
  Scope Changed(Change change) const;

  std::shared_ptr<const api_internal::ScopeSettings> settings_;
};

}  // namespace millrace
