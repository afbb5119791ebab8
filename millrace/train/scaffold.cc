#include "millrace/train/scaffold.h"

#include "millrace/api/lookup_table.h"
#include "millrace/train/summary.h"

namespace millrace {

Status Scaffold::Finalize(const Scope& scope, const ScaffoldDefaults& defaults) {
  MR_RETURN_IF_ERROR(scope.status());
  if (finalized) return absl::OkStatus();
  const Scope s = scope.WithPrefix("").WithoutControlDependencies().WithoutOpName();
  std::vector<Var> all = GlobalVariables(scope);
  const std::vector<Var> local = LocalVariables(scope);
  if (init_op.empty()) init_op = GlobalVariablesInitializer(s);
  const bool tables = !TableInitializers(scope).empty();
  if (ready_for_local_init_op.empty() && (!local.empty() || tables || !local_init_op.empty())) {
    ready_for_local_init_op = UninitializedVariables(s.WithOpName("ready_for_local_init"), all);
  }
  if (local_init_op.empty() && (!local.empty() || tables)) {
    local_init_op = tables ? TablesInitializer(s) : LocalVariablesInitializer(s);
    if (tables && !local.empty()) {
      local_init_op = Group(s.WithOpName("init_local_and_tables"), {LocalVariablesInitializer(s), local_init_op});
    }
  }
  all.insert(all.end(), local.begin(), local.end());
  if (ready_op.empty()) ready_op = UninitializedVariables(s.WithOpName("ready"), all);
  if (summary_op.empty()) summary_op = MergeAllSummaries(s);
  if (saver == nullptr && defaults.saver && !GlobalVariables(scope).empty()) {
    saver = std::make_shared<Saver>(scope, saver_options);
  }
  MR_RETURN_IF_ERROR(scope.status());
  if (ready_op.dtype() != DType::kString ||
      (!ready_for_local_init_op.empty() && ready_for_local_init_op.dtype() != DType::kString)) {
    return InvalidArgument("a ready op must return strings, the names of what is not ready; ", ready_op.name(),
                           " does not");
  }
  finalized = true;
  return absl::OkStatus();
}

}  // namespace millrace
