// Access to the global step for hooks and services.
#pragma once

#include <optional>

#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"

namespace millrace {

// The graph's global step, if GlobalStep(scope) has created one. Adds nothing to the graph.
std::optional<Var> FindGlobalStep(const Scope& scope);

// Its current value.
StatusOr<int64_t> ReadGlobalStep(ClientSession* session, const Var& global_step);

}  // namespace millrace
