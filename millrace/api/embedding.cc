#include "millrace/api/embedding.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/reductions.h"

namespace millrace {
namespace {

using api_internal::Cast;

Output NoRows(const Scope& s) { return Output(s, Endpoint{}); }

// Element i of a vector, as a scalar.
Output ElementOf(const Scope& s, const Output& vector, int32_t i) {
  return Op(s, "StridedSlice", {vector, std::vector<int32_t>{i}, std::vector<int32_t>{i + 1}, std::vector<int32_t>{1}},
            {{"shrink_axis_mask", 1}});
}

// Column i of a matrix.
Output ColumnOf(const Scope& s, const Output& matrix, int32_t i) {
  return Op(s, "StridedSlice",
            {matrix, std::vector<int32_t>{0, i}, std::vector<int32_t>{0, i + 1}, std::vector<int32_t>{1, 1}},
            {{"shrink_axis_mask", 2}, {"begin_mask", 1}, {"end_mask", 1}});
}

Output ClipRows(const Scope& s, const Output& rows, double max_norm) {
  const Output squares = Op(s, "Sum", {Op(s, "Square", {rows}), std::vector<int32_t>{-1}}, {{"keep_dims", true}});
  const Output norm = Op(s, "Sqrt", {Op(s, "Maximum", {squares, 1e-30})});
  // rows * max_norm / max(norm, max_norm), which leaves short rows as they are, to the bit.
  const Output factor = Op(s, "RealDiv", {Input(max_norm).In(s, rows.dtype()), Op(s, "Maximum", {norm, max_norm})});
  return Op(s, "Mul", {rows, factor});
}

// x divided by one number for each row; 0 where that is 0.
Output DivideRows(const Scope& s, const Output& x, const Output& by) {
  return Op(s, "DivNoNan", {x, Op(s, "ExpandDims", {by, 1})});
}

Output LookUp(const Scope& s, const std::vector<Var>& parts, const Output& ids, LookupStrategy strategy,
              std::optional<double> max_norm) {
  const Output rows = EmbeddingLookup(s, parts, ids, strategy);
  return max_norm ? ClipRows(s, rows, *max_norm) : rows;
}

// The rows at `ids`, which belong to the examples `example` (int32, ascending) of `count`, combined.
Output CombineRows(const Scope& s, const std::vector<Var>& parts, const Output& ids, const Output& weights,
                   const Output& example, const Output& count, const EmbeddingLookupSparseOptions& options) {
  const Operation unique = AddOp(s, "Unique", {ids});
  const Output rows = LookUp(s, parts, unique.output(0), options.strategy, options.max_norm);
  if (weights.empty()) {
    const char* const op = options.combiner == Combiner::kSum    ? "SparseSegmentSumWithNumSegments"
                           : options.combiner == Combiner::kMean ? "SparseSegmentMeanWithNumSegments"
                                                                 : "SparseSegmentSqrtNWithNumSegments";
    return Op(s, op, {rows, unique.output(1), example, count});
  }
  const Output w = Cast(s, weights, rows.dtype());
  const Output each = Op(s, "GatherV2", {rows, unique.output(1), 0});
  const Output sum = Op(s, "UnsortedSegmentSum", {Op(s, "Mul", {each, Op(s, "ExpandDims", {w, 1})}), example, count});
  if (options.combiner == Combiner::kSum) return sum;
  if (options.combiner == Combiner::kMean) return DivideRows(s, sum, Op(s, "UnsortedSegmentSum", {w, example, count}));
  const Output squares = Op(s, "UnsortedSegmentSum", {Op(s, "Square", {w}), example, count});
  return DivideRows(s, sum, Op(s, "Sqrt", {squares}));
}

bool CheckTable(const Scope& s, const std::vector<Var>& parts) {
  if (!s.ok()) return false;
  for (const Var& part : parts) {
    if (part.shape().known_rank() && part.shape().rank() == 2) continue;
    s.UpdateStatus(InvalidArgument("embedding lookup in scope '", s.prefix(), "': ", part.var_name(), " has shape ",
                                   part.shape().ToString(), "; a table has rows and columns"));
    return false;
  }
  return true;
}

// The parts of a table that is split along its rows.
const std::vector<Var>& PartsOf(const Scope& s, const PartitionedVar& table) {
  if (s.ok() && table.axis() != 0) {
    s.UpdateStatus(InvalidArgument("embedding lookup in scope '", s.prefix(), "': ", table.name(),
                                   " is cut along dimension ", table.axis(),
                                   "; only a table that is cut along its rows can be looked up in parts"));
  }
  return table.parts();
}

// Keeps the elements for which `keep` is true.
SparseOutput Retain(const Scope& s, const SparseOutput& x, const Output& at) {
  if (x.empty()) return x;
  return {Op(s, "GatherV2", {x.indices, at, 0}), Op(s, "GatherV2", {x.values, at, 0}), x.dense_shape};
}

}  // namespace

StatusOr<Combiner> ParseCombiner(absl::string_view name) {
  if (name == "sum") return Combiner::kSum;
  if (name == "mean") return Combiner::kMean;
  if (name == "sqrtn") return Combiner::kSqrtN;
  return InvalidArgument("the combiner '", name, "' is none of sum, mean and sqrtn");
}

Output EmbeddingLookupMaxNorm(const Scope& scope, const PartitionedVar& table, const Input& ids, double max_norm,
                              LookupStrategy strategy) {
  const Scope s = scope.ForComposite("embedding_lookup");
  const std::vector<Var>& parts = PartsOf(s, table);
  if (!s.ok()) return NoRows(s);
  return LookUp(s, parts, ids.In(s, DType::kInt32, "ids"), strategy, max_norm);
}

Output EmbeddingLookupSparse(const Scope& scope, const std::vector<Var>& parts, const SparseOutput& ids,
                             const SparseOutput& weights, const EmbeddingLookupSparseOptions& options) {
  const Scope s = scope.ForComposite("embedding_lookup_sparse");
  if (!CheckTable(s, parts)) return NoRows(s);
  const Output example = Cast(s, ColumnOf(s, ids.indices, 0), DType::kInt32);
  const Output count = Cast(s, ElementOf(s, ids.dense_shape, 0), DType::kInt32);
  return CombineRows(s, parts, ids.values, weights.values, example, count, options);
}

Output EmbeddingLookupSparse(const Scope& scope, const PartitionedVar& table, const SparseOutput& ids,
                             const SparseOutput& weights, const EmbeddingLookupSparseOptions& options) {
  return EmbeddingLookupSparse(scope, PartsOf(scope, table), ids, weights, options);
}

Output SafeEmbeddingLookupSparse(const Scope& scope, const PartitionedVar& table, const SparseOutput& ids,
                                 const SparseOutput& weights, const SafeEmbeddingLookupSparseOptions& options) {
  const Scope s = scope.ForComposite("safe_embedding_lookup_sparse");
  const std::vector<Var>& parts = PartsOf(s, table);
  if (!CheckTable(s, parts)) return NoRows(s);
  const PartialShape shape = ids.indices.shape();
  const bool flat = shape.known_rank() && shape.rank() == 2 && shape.dim(1) == 2;
  SparseOutput x = ids, w = weights;
  Output leading;  // the dimensions that the result keeps
  if (!flat) {
    leading = Op(s, "Slice",
                 {ids.dense_shape, std::vector<int32_t>{0},
                  Op(s, "Sub", {Op(s, "Shape", {ids.dense_shape}), std::vector<int32_t>{1}})});
    const Output last = Op(s, "Slice", {ids.dense_shape, Op(s, "Shape", {leading}), std::vector<int32_t>{1}});
    const Output two = Op(s, "ConcatV2", {InputList{Op(s, "Prod", {leading, 0}, {{"keep_dims", true}}), last}, 0});
    const Operation reshaped = AddOp(s, "SparseReshape", {ids.indices, ids.dense_shape, two});
    x = {reshaped.output(0), ids.values, reshaped.output(1)};
    if (!w.empty()) w.indices = x.indices;
  }
  Output valid;
  if (options.may_have_invalid_ids) valid = Op(s, "GreaterEqual", {x.values, 0});
  if (!w.empty() && options.combiner != Combiner::kSum) {
    const Output positive = Op(s, "Greater", {w.values, 0});
    valid = valid.empty() ? positive : Op(s, "LogicalAnd", {valid, positive});
  }
  if (!valid.empty()) {
    const Output at = Op(s, "Reshape", {Op(s, "Where", {valid}), std::vector<int32_t>{-1}});
    w = Retain(s, w, at);
    x = Retain(s, x, at);
  }
  if (options.default_id) {
    const Operation filled = AddOp(s, "SparseFillEmptyRows",
                                   {x.indices, x.values, x.dense_shape,
                                    Cast(s, Input(*options.default_id).In(s, DType::kInt64), x.values.dtype())});
    if (!w.empty())
      w.values = Op(s, "SparseFillEmptyRows", {w.indices, w.values, x.dense_shape, Input(1.0).In(s, w.values.dtype())})
                     .op()
                     .output(1);
    x = {filled.output(0), filled.output(1), x.dense_shape};
  }
  const Output example = Cast(s, ColumnOf(s, x.indices, 0), DType::kInt32);
  const Output count = Cast(s, ElementOf(s, x.dense_shape, 0), DType::kInt32);
  const Output rows =
      CombineRows(s, parts, x.values, w.values, example, count,
                  {.combiner = options.combiner, .max_norm = options.max_norm, .strategy = options.strategy});
  if (flat || !s.ok()) return rows;
  const int64_t columns = table.shape().dim(1);
  const Output result = Op(s, "ConcatV2", {InputList{leading, std::vector<int64_t>{columns}}, 0});
  return Op(s, "Reshape", {rows, result});
}

}  // namespace millrace
