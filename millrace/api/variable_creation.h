// How a variable that a scope is asked for is found or made. Internal to the front end.
#pragma once

#include <string>

#include "millrace/api/partitioned_variable.h"
#include "millrace/api/scope_state.h"

namespace millrace::api_internal {

// The full name of a variable called `name` in this scope. Outside of variable scopes it is made unique when the
// variable is made.
std::string VariableName(const Scope& scope, absl::string_view name);

// By way of the scope's getters: the variable of that name, if the variable scope reuses it, or a new one by way of the
// scope's creators. Empty after an error.
Var GetVariable(const Scope& scope, const VariableRequest& request);

// Reserves the name of a partitioned variable; `scope` is then where its parts are made. In a variable scope the name
// is `name` in full, and that of a variable in parts that exists may be reserved again.
struct PartsScope {
  std::string name;
  Scope scope;
};
StatusOr<PartsScope> ReservePartitioned(const Scope& scope, absl::string_view name);

// The value of a layer's weight, without a node of its own if it is in one part.
inline Output WholeOf(const Scope& scope, const PartitionedVar& variable) {
  if (variable.empty()) return Output(scope, Endpoint{});
  return variable.parts().size() == 1 ? Output(variable.parts()[0]) : variable.Value(scope);
}

}  // namespace millrace::api_internal
