#include "millrace/ops/functional/functional_shapes.h"

namespace millrace {

Status DeclaredShapes(ShapeContext& c) {
  MR_RETURN_IF_ERROR(UnknownShape(c));
  for (const char* name : {"output_shapes", "_output_shapes"}) {
    const StatusOr<std::vector<PartialShape>> shapes = c.Attr<std::vector<PartialShape>>(name);
    if (!shapes.ok() || static_cast<int>(shapes->size()) != c.num_outputs()) continue;
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, (*shapes)[i]);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace millrace
