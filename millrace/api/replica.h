// What a strategy's replica changes for the ops that are built in it. Internal to the front end and strategy/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/base/shard_tree.h"

namespace millrace::api_internal {

// Immutable.
struct ReplicaSettings {
  // A scalar int64 that is different in each step and replica. Layers with random numbers derive them from it, so that
  // they depend neither on how many replicas a graph has nor on earlier steps.
  Endpoint random_key;
  // Called instead of adding an assignment of a variable: `op` is the op that would be added.
  std::function<Operation(const Scope& scope, const Var& variable, const char* op, const Output& value)> assign;
  int number = 0;
  // A scalar float, if the batch may be partial: see PerReplica::weights.
  Endpoint weight = {};
};

// In a replica without examples, which computes with a stand-in: what leaves a local variable as it is. Otherwise
// `value`.
Output OnlyWithExamples(const Scope& scope, const Var& variable, const char* op, const Output& value);

// How each variable is aggregated, by its handle. What is made in the scope below is entered.
using VariableAggregations = absl::flat_hash_map<const Node*, VariableAggregation>;
Scope RecordAggregations(const Scope& scope, std::shared_ptr<VariableAggregations> into);

// What replicas assign while the model is built for them, one replica after another. They assign together: the values
// become one.
class ReplicaAssignments {
 public:
  struct Assignment {
    Var variable;
    std::string op;
    Output value;
    // Part of the replica: an op that runs after the common assignment, if somebody gives it that control input.
    Operation done;
    Output weight = {};  // of the replica; empty if all are equal
  };
  void BeginReplica() { replicas_.emplace_back(); }
  Operation Add(const Scope& scope, const Var& variable, const char* op, const Output& value);
  const std::vector<std::vector<Assignment>>& replicas() const { return replicas_; }
  // INVALID_ARGUMENT, naming the replicas, of which the first is number `first`, unless all assign the same variables.
  Status CheckSame(int first) const;

 private:
  std::vector<std::vector<Assignment>> replicas_;
};

// The scope of replica `number` of `count`. Its nodes have the prefix `name`; variables do not, and are shared by name.
// Assignments go to `assignments`, which must be alive until the replica is built. `weight` may be empty.
Scope ReplicaScope(const Scope& scope, const std::string& name, int number, int count,
                   const std::shared_ptr<ReplicaAssignments>& assignments, const Output& weight = {});

// The sum of the values of a node of the shard tree; `values` has its shards from number `first` on.
Output TreeSum(const Scope& scope, const std::vector<Output>& values, int first, ShardRange node);

// A name of the ops that are built next that is the same in all replicas: that of the variable scope, if there is one.
std::string StableName(const ScopeSettings& settings);
// From 1 to 2^31 - 1. The same on every machine.
int64_t HashOfName(absl::string_view name);

// Uniform numbers in [0, 1) of the shape of `like`. In a replica they depend on (seed, name of the scope, step,
// replica) alone.
Output UniformLike(const Scope& scope, const Output& like, std::optional<int64_t> seed);

}  // namespace millrace::api_internal
