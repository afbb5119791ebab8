#include "millrace/graph/passes/pass.h"
#include "millrace/graph/passes/saved_reads.h"

namespace millrace {

absl::Span<const Pass> AllPasses() {
  // Order matters: folding turns shapes into constants that CSE can compare, and fusion patterns match only after
  // identities are removed.
  static constexpr Pass kPasses[] = {
      {"constant_folding", &PassOptions::constant_folding, FoldConstants},
      {"identity_removal", &PassOptions::identity_removal, RemoveIdentities},
      {"common_subexpressions", &PassOptions::common_subexpressions, MergeCommonSubexpressions},
      {"fusion", &PassOptions::fusion, FuseMatMul},
      {"sliced_products", &PassOptions::fusion, SliceProducts},
      {"batch_norm_fusion", &PassOptions::fusion, FuseBatchNorm},
      {"moments_fusion", &PassOptions::fusion, FuseMoments},
      {"gradient_sum_fusion", &PassOptions::fusion, FuseGradientSums},
      {"row_reads", &PassOptions::row_reads, ReadRowsOfVariables},
      {"saved_reads", &PassOptions::row_reads, SaveVariablesInPlace},
      {"row_sums", &PassOptions::fusion, FuseRowSums},
      {"elementwise_fusion", &PassOptions::elementwise_fusion, FuseElementwise},
  };
  return kPasses;
}

Status RunPasses(Graph* graph, const PassContext& context, const PassOptions& options) {
  MR_RETURN_IF_ERROR(Prune(graph, context));
  bool any = false;
  for (const Pass& pass : AllPasses()) {
    if (!(options.*pass.enabled)) continue;
    any = true;
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("pass ", pass.name, ": "), pass.run(graph, context)));
  }
  // Remove nodes that the rewrites left unused.
  return any ? Prune(graph, context) : absl::OkStatus();
}

}  // namespace millrace
