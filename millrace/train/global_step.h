// The number of training steps, for those who watch them.
#pragma once

#include <optional>

#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"

namespace millrace {

// The graph's global step, when it was made (GlobalStep(scope) makes it); nothing is added to the graph.
std::optional<Var> FindGlobalStep(const Scope& scope);

// Its value now.
StatusOr<int64_t> ReadGlobalStep(ClientSession* session, const Var& global_step);

}  // namespace millrace
