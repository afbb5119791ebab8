// What a strategy's replica changes for the ops that are built in it. Internal to the front end and strategy/.
#pragma once

#include <functional>
#include <string>

#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"

namespace millrace::api_internal {

// Immutable.
struct ReplicaSettings {
  // A scalar int64 that is different in each step and replica. Layers with random numbers derive them from it, so that
  // they depend neither on how many replicas a graph has nor on earlier steps.
  Endpoint random_key;
  // Called instead of adding an assignment of a variable: `op` is the op that would be added.
  std::function<Operation(const Scope& scope, const Var& variable, const char* op, const Output& value)> assign;
};

// A name of the ops that are built next that is the same in all replicas: that of the variable scope, if there is one.
std::string StableName(const ScopeSettings& settings);
// From 1 to 2^31 - 1. The same on every machine.
int64_t HashOfName(absl::string_view name);

// Uniform numbers in [0, 1) of the shape of `like`. In a replica they depend on (seed, name of the scope, step,
// replica) alone.
Output UniformLike(const Scope& scope, const Output& like, std::optional<int64_t> seed);

}  // namespace millrace::api_internal
