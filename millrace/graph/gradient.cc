#include "millrace/graph/gradient.h"

#include "millrace/graph/backward.h"

namespace millrace {

StatusOr<std::vector<Grad>> AddGradients(Graph* graph, const std::vector<Endpoint>& ys, const std::vector<Endpoint>& xs,
                                         const GradientOptions& options) {
  return Backward(graph, ys, xs, options).Run();
}

}  // namespace millrace
