#include "millrace/train/global_step.h"

#include "millrace/api/scope_state.h"

namespace millrace {

std::optional<Var> FindGlobalStep(const Scope& scope) {
  const auto& state = api_internal::StateOf(scope);
  if (!state.global_step) return std::nullopt;
  return Var(scope, state.variables[*state.global_step]);
}

StatusOr<int64_t> ReadGlobalStep(ClientSession* session, const Var& global_step) {
  MR_ASSIGN_OR_RETURN(const Tensors result, session->Run({global_step}));
  return result[0].scalar<int64_t>();
}

}  // namespace millrace
