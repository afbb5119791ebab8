#include "millrace/api/rnn_sequence.h"

namespace millrace {
namespace {

// The dimensions of a shape as a constant, with -1 for those that are unknown.
Output DimsConst(const Scope& s, const PartialShape& shape) {
  if (!shape.known_rank()) return Input(-1).In(s.WithOpName("element_shape"));
  std::vector<int32_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(static_cast<int32_t>(shape.dim(i)));
  return Input(dims).In(s.WithOpName("element_shape"));
}

}  // namespace

Output DimOf(const Scope& s, const Output& x, int i) {
  if (x.empty()) return Output(s, Endpoint{});
  if (x.shape().known_rank() && x.shape().dim(i) >= 0) {
    return Input(static_cast<int32_t>(x.shape().dim(i))).In(s.WithOpName("dim"));
  }
  return Op(s.WithOpName("dim"), "StridedSlice",
            {Op(s, "Shape", {x}), std::vector<int32_t>{i}, std::vector<int32_t>{i + 1}, std::vector<int32_t>{1}},
            {{"shrink_axis_mask", 1}});
}

RowList RowList::Of(const Scope& s, const Output& x) {
  RowList rows;
  if (x.empty()) return rows;
  rows.dtype_ = x.dtype();
  const PartialShape shape = x.shape();
  if (shape.known_rank() && shape.rank() > 0) {
    rows.shape_ = PartialShape(shape.dims().subspan(1));
    rows.size_ = shape.dim(0);
  }
  if (rows.shape_.IsFullyDefined()) {
    rows.dims_ = DimsConst(s, rows.shape_);
  } else {
    rows.dims_ = Op(s.WithOpName("element_shape"), "StridedSlice",
                    {Op(s, "Shape", {x}), std::vector<int32_t>{1}, std::vector<int32_t>{0}, std::vector<int32_t>{1}},
                    {{"end_mask", 1}});
  }
  rows.list_ = Op(s, "TensorListFromTensor", {x, rows.dims_});
  return rows;
}

RowList RowList::Reserve(const Scope& s, DType dtype, const Output& dims, const PartialShape& shape, const Output& x) {
  RowList rows;
  rows.dtype_ = dtype;
  rows.shape_ = shape;
  rows.dims_ = shape.IsFullyDefined() || dims.empty() ? DimsConst(s, shape) : dims;
  rows.list_ = Op(s, "TensorListReserve", {rows.dims_, DimOf(s, x, 0)}, {{"element_dtype", dtype}});
  if (!x.empty() && x.shape().known_rank()) rows.size_ = x.shape().dim(0);
  return rows;
}

Output RowList::At(const Scope& s, const Output& index) const {
  const Output row = Op(s, "TensorListGetItem", {list_, index, dims_}, {{"element_dtype", dtype_}});
  if (row.empty() || row.shape().IsFullyDefined() || !shape_.known_rank()) return row;
  return Op(s, "EnsureShape", {row}, {{"shape", shape_}});
}

Output RowList::With(const Scope& s, const Output& list, const Output& index, const Output& element) const {
  return Op(s, "TensorListSetItem", {list, index, element});
}

Output RowList::Stack(const Scope& s, const Output& list) const {
  const Output rows = Op(s, "TensorListStack", {list, dims_}, {{"element_dtype", dtype_}, {"num_elements", size_}});
  if (rows.empty() || rows.shape().IsFullyDefined() || !shape_.known_rank()) return rows;
  PartialShape shape({size_});
  for (int i = 0; i < shape_.rank(); ++i) shape.AddDim(shape_.dim(i));
  return rows.shape().known_rank() && rows.shape() == shape ? rows : Op(s, "EnsureShape", {rows}, {{"shape", shape}});
}

namespace rnn {

Output WithinLength(const Scope& s, const Output& x, const Output& length) {
  if (length.empty() || !s.ok()) return x;
  const Output times = Op(s, "ExpandDims", {Op(s, "Range", {0, DimOf(s, x, 0), 1}), 1});
  Output within = Op(s, "Less", {times, Op(s, "ExpandDims", {length, 0})});
  for (int i = 2; i < x.shape().rank(); ++i) within = Op(s, "ExpandDims", {within, -1});
  return Op(s, "SelectV2", {within, x, Input(0).In(s, x.dtype())});
}

Output LastOf(const Scope& s, const Output& x, const Output& start, const Output& length) {
  if (!s.ok()) return x;
  // With the start before it, row `length` is the last one.
  const bool is_row_of_x = length.empty() && x.shape().dim(0) > 0;
  const Output all = is_row_of_x ? x : Op(s, "ConcatV2", {InputList{Op(s, "ExpandDims", {start, 0}), x}, 0});
  if (length.empty()) {
    return Op(s, "StridedSlice", {all, std::vector<int32_t>{-1}, std::vector<int32_t>{0}, std::vector<int32_t>{1}},
              {{"end_mask", 1}, {"shrink_axis_mask", 1}});
  }
  const Output examples = Op(s, "Range", {0, DimOf(s, x, 1), 1});
  return Op(s, "GatherNd", {all, Op(s, "Pack", {InputList{length, examples}}, {{"axis", 1}})});
}

}  // namespace rnn
}  // namespace millrace
