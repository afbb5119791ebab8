// Where a model's ops go: the graph, a name prefix, a device, what must run first.
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
namespace api_internal {
struct GraphState;
struct ScopeSettings;
}  // namespace api_internal

// Which device a new node asks for. node.requested_device() is what the scopes within said; the result takes its place.
using DeviceFunction = std::function<std::string(const Node& node)>;

// A cheap value: copies share the graph. Every op builder takes one as its first argument.
//
//   Scope root = Scope::NewRoot();
//   Scope layer = root.SubScope("layer1");            // names start with "layer1/"
//   Output y = ops::MatMul(layer.WithOpName("logits"), x, w);   // "layer1/logits"
//
// The first error sticks, for all scopes of the graph: later calls add nothing and return empty
// outputs, and status() says what went wrong, naming node and op. Not thread-safe: one graph is
// built by one thread.
class Scope {
 public:
  // A new graph.
  static Scope NewRoot();

  // Names start with `name/`; a second scope of that name is called name_1.
  Scope SubScope(absl::string_view name) const;
  // The nodes built next are called `name`, made unique with a suffix.
  Scope WithOpName(absl::string_view name) const;
  // Where ops run; what this name leaves open, the scope's device so far decides.
  Scope WithDevice(absl::string_view device) const;
  // Where ops run, decided for each as it is built: see replica_device_setter.h. What the result leaves open, the scope's device
  // so far decides.
  Scope WithDeviceFunction(DeviceFunction choose) const;
  // Where nobody said yet: neither a device nor a device function of the scopes around holds.
  Scope WithoutDevice() const;
  // The ops run after `ops` too, which are Operations or Outputs.
  Scope WithControlDependencies(const std::vector<Operation>& ops) const;
  Scope WithoutControlDependencies() const;
  // On the device of `op`, whichever that will be.
  Scope ColocateWith(const Operation& op) const;

  // For functions that add several nodes: a sub-scope called what WithOpName said, or `fallback`.
  Scope ForComposite(absl::string_view fallback) const;
  // The same settings with names that start with `prefix/`, exactly; "" for the top.
  Scope WithPrefix(absl::string_view prefix) const;

  Graph* graph() const;
  const std::string& prefix() const;   // "a/b"; empty at the top
  const std::string& op_name() const;  // what WithOpName said
  const std::string& device() const;

  const Status& status() const;
  bool ok() const { return status().ok(); }
  // Records the first error, for functions written over the builders.
  void UpdateStatus(const Status& status) const;

  StatusOr<pb::GraphDef> ToGraphDef() const;

  // Makes the random ops built from now on repeatable. As in TensorFlow, the seeds of an op follow
  // from this one and from the op's own, or else from the number of nodes built before it.
  void SetRandomSeed(int64_t seed) const;
  // The attrs `seed` and `seed2` of a random op with the given seed of its own; (0, 0), which means
  // different numbers in each session, when there is neither.
  std::pair<int64_t, int64_t> OpSeeds(std::optional<int64_t> op_seed = std::nullopt) const;

  // For the front end itself.
  explicit Scope(std::shared_ptr<const api_internal::ScopeSettings> settings)
      : settings_(std::move(settings)) {}
  const api_internal::ScopeSettings& settings() const { return *settings_; }
  api_internal::GraphState& state() const;
  // The full name that a node called `name` would get, taken at once; and the scope whose next node
  // gets it.
  std::string TakeName(absl::string_view name) const;
  Scope WithTakenName(absl::string_view full_name) const;
  // True for the scope of an Output that no builder made.
  bool is_null() const { return settings_ == nullptr; }
  Scope WithoutOpName() const;

 private:
  friend class Operation;
  friend class Output;
  Scope() = default;

  std::shared_ptr<const api_internal::ScopeSettings> settings_;
};

}  // namespace millrace
