#include "millrace/ops/parsing/output_shapes.h"

#include "millrace/ops/parsing/example_columns.h"

namespace millrace {

Status OutputShapes::Add(const Attrs& attrs, int steps) {
  constexpr int64_t kUnknown = PartialShape::kUnknown;
  if (serialized_.known_rank() && serialized_.rank() > 1) {
    return InvalidArgument("serialized must be a scalar or a vector, but has shape ", serialized_.ToString());
  }
  std::vector<DType> sparse, ragged;
  std::vector<PartialShape> dense;
  if (*attrs.sparse_types != '\0') {
    MR_ASSIGN_OR_RETURN(sparse, c_.Attr<std::vector<DType>>(attrs.sparse_types));
  }
  if (*attrs.ragged_types != '\0') {
    MR_ASSIGN_OR_RETURN(ragged, c_.Attr<std::vector<DType>>(attrs.ragged_types));
  }
  if (*attrs.dense_shapes != '\0') {
    MR_ASSIGN_OR_RETURN(dense, c_.Attr<std::vector<PartialShape>>(attrs.dense_shapes));
  }
  MR_RETURN_IF_ERROR(CheckDenseShapes(dense, attrs.fully_defined));
  const size_t outputs =
      3 * sparse.size() + dense.size() * (attrs.lengths ? 2 : 1) + ragged.size() * (2 + static_cast<size_t>(steps));
  if (next_ + static_cast<int>(outputs) > c_.num_outputs()) {
    return InvalidArgument("the attrs ", attrs.sparse_types, ", ", attrs.dense_shapes, " and ", attrs.ragged_types,
                           " do not fit the node's ", c_.num_outputs(), " outputs");
  }
  const bool known = serialized_.known_rank(), batched = known && serialized_.rank() == 1;
  const int64_t batch = batched ? serialized_.dim(0) : kUnknown;
  const int64_t sparse_rank = known ? steps + (batched ? 2 : 1) : kUnknown;
  for (size_t i = 0; i < sparse.size(); ++i) Next(PartialShape({kUnknown, sparse_rank}));
  for (size_t i = 0; i < sparse.size(); ++i) Next(PartialShape({kUnknown}));
  for (size_t i = 0; i < sparse.size(); ++i) Next(PartialShape({sparse_rank}));
  for (const PartialShape& shape : dense) {
    if (!known) {
      Next(PartialShape());
      continue;
    }
    PartialShape out = PartialShape::Scalar();
    if (batched) out.AddDim(batch);
    if (steps > 0) out.AddDim(kUnknown);
    for (const int64_t dim : shape.dims()) out.AddDim(dim);
    Next(out);
  }
  if (attrs.lengths) {
    for (size_t i = 0; i < dense.size(); ++i) Next(serialized_);
  }
  for (size_t i = 0; i < ragged.size(); ++i) Next(PartialShape({kUnknown}));
  PartialShape splits;
  if (batched) {
    splits = PartialShape({batch < 0 ? kUnknown : batch + 1});
  } else if (known) {
    splits = attrs.scalar_splits ? PartialShape::Scalar() : PartialShape({0});
  }
  for (size_t i = 0; i < ragged.size(); ++i) Next(splits);
  if (steps > 0) {
    for (size_t i = 0; i < ragged.size(); ++i) Next(PartialShape({kUnknown}));
  }
  return absl::OkStatus();
}

}  // namespace millrace
