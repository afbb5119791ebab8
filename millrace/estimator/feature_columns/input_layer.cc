#include "millrace/estimator/feature_columns/input_layer.h"

#include <algorithm>

#include "millrace/api/variable_creation.h"
#include "millrace/estimator/feature_columns/column.h"

namespace millrace {
namespace {

using feature_columns::ColumnScope;

// The columns in the order of their names; an error if one of them is wrong, or a name is there twice.
StatusOr<std::vector<FeatureColumn>> SortedColumns(const std::vector<FeatureColumn>& columns) {
  if (columns.empty()) return InvalidArgument("there are no feature columns");
  std::vector<FeatureColumn> sorted = columns;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const FeatureColumn& a, const FeatureColumn& b) { return a.name() < b.name(); });
  for (size_t i = 0; i < sorted.size(); ++i) {
    MR_RETURN_IF_ERROR(sorted[i].status());
    if (i > 0 && sorted[i].name() == sorted[i - 1].name())
      return InvalidArgument("feature column '", sorted[i].name(), "': there are two of that name");
  }
  return sorted;
}

// Calls `each` for the columns in order, until the scope fails.
template <typename Fn>
void ForColumns(const Scope& s, const std::vector<FeatureColumn>& columns, const Fn& each) {
  const StatusOr<std::vector<FeatureColumn>> sorted = SortedColumns(columns);
  s.UpdateStatus(sorted.status());
  for (size_t i = 0; s.ok() && i < sorted->size(); ++i) each((*sorted)[i].column());
}

// The same values with a last dimension that is known when the graph is built, which layers need.
Output OfKnownWidth(const Scope& s, const Output& values, int64_t width) {
  const PartialShape shape = values.shape();
  if (!s.ok() || (shape.known_rank() && shape.rank() == 2 && shape.dim(1) == width)) return values;
  return Op(s, "Reshape", {values, std::vector<int32_t>{-1, static_cast<int32_t>(width)}});
}

Output JoinedColumns(const Scope& s, const std::vector<Input>& parts, int axis) {
  if (!s.ok() || parts.empty()) return Output(s, Endpoint{});
  if (parts.size() == 1) return Op(s.WithOpName("concat"), "Identity", {parts[0]});
  return Op(s.WithOpName("concat"), "ConcatV2", {InputList(parts), axis});
}

}  // namespace

Output InputLayer(const Scope& scope, FeatureTensors& features, const std::vector<FeatureColumn>& columns,
                  const InputLayerOptions& options) {
  const Scope s = scope.ForComposite("input_layer");
  std::vector<Input> parts;
  ForColumns(s, columns, [&](const feature_columns::Column& column) {
    if (!column.is_dense()) {
      s.UpdateStatus(column.Wrong(column.is_sequence() ? "is a column of sequences: use SequenceInputLayer"
                                                       : "is not dense: wrap it by Embedding or Indicator"));
      return;
    }
    parts.emplace_back(OfKnownWidth(s, column.Values(ColumnScope{s, options.trainable}, features), column.width()));
  });
  return JoinedColumns(s, parts, 1);
}

Output InputLayer(const Scope& scope, const OutputMap& features, const std::vector<FeatureColumn>& columns,
                  const InputLayerOptions& options) {
  FeatureTensors tensors(features);
  return InputLayer(scope, tensors, columns, options);
}

Output LinearModel(const Scope& scope, FeatureTensors& features, const std::vector<FeatureColumn>& columns,
                   const LinearModelOptions& options) {
  const Scope s = scope.ForComposite("linear_model");
  if (options.units < 1) s.UpdateStatus(InvalidArgument("linear model ", s.prefix(), ": units is ", options.units));
  const VarOptions variable{.trainable = options.trainable};
  std::vector<Input> sums;
  ForColumns(s, columns, [&](const feature_columns::Column& column) {
    if (column.is_sequence() || (!column.is_dense() && !column.is_categorical())) {
      s.UpdateStatus(column.Wrong("is neither dense nor categorical"));
      return;
    }
    if (column.is_categorical()) {
      const IdsAndWeights ids = features.IdsOf(s, column);
      const Scope inside = s.VariableScope(column.scope_name());
      const PartitionedVar weights(inside, "weights", Shape({column.num_buckets(), options.units}), init::Zeros(),
                                   variable);
      if (!s.ok()) return;
      sums.emplace_back(SafeEmbeddingLookupSparse(
          inside.WithOpName("weighted_sum"), weights, ids.ids, ids.weights,
          {.combiner = options.sparse_combiner, .may_have_invalid_ids = column.may_have_invalid_ids()}));
      return;
    }
    const Output values = column.Values(ColumnScope{s, options.trainable}, features);
    const Scope inside = s.VariableScope(column.scope_name());
    const PartitionedVar weights(inside, "weights", Shape({column.width(), options.units}), init::Zeros(), variable);
    if (!s.ok()) return;
    sums.emplace_back(
        Op(inside.WithOpName("weighted_sum"), "MatMul", {values, api_internal::WholeOf(inside, weights)}));
  });
  const PartitionedVar bias(s, "bias_weights", Shape({options.units}), init::Zeros(), variable);
  if (!s.ok()) return Output(s, Endpoint{});
  const Output sum =
      sums.size() == 1 ? sums[0].In(s) : Op(s.WithOpName("weighted_sum_no_bias"), "AddN", {InputList(sums)});
  return Op(s.WithOpName("weighted_sum"), "BiasAdd", {sum, api_internal::WholeOf(s, bias)});
}

Output LinearModel(const Scope& scope, const OutputMap& features, const std::vector<FeatureColumn>& columns,
                   const LinearModelOptions& options) {
  FeatureTensors tensors(features);
  return LinearModel(scope, tensors, columns, options);
}

SequenceInput SequenceInputLayer(const Scope& scope, const OutputMap& features,
                                 const std::vector<FeatureColumn>& columns, const InputLayerOptions& options) {
  const Scope s = scope.ForComposite("sequence_input_layer");
  FeatureTensors tensors(features);
  std::vector<Input> parts;
  Output lengths;
  int32_t width = 0;
  ForColumns(s, columns, [&](const feature_columns::Column& column) {
    if (!column.is_sequence() || column.is_categorical()) {
      s.UpdateStatus(column.Wrong(column.is_sequence() ? "is not dense: wrap it by Embedding or Indicator"
                                                       : "is not a column of sequences"));
      return;
    }
    feature_columns::SequenceValues made = column.Sequence(ColumnScope{s, options.trainable}, tensors);
    if (!s.ok()) return;
    if (!lengths.empty()) {
      const Output same = Op(s, "All", {Op(s, "Equal", {lengths, made.lengths}), std::vector<int32_t>{0}});
      made.values = feature_columns::CheckedBy(s, column,
                                               "the sequences have other lengths than those of another column; "
                                               "those are",
                                               same, made.lengths, made.values);
    } else {
      lengths = made.lengths;
    }
    parts.emplace_back(made.values);
    width += static_cast<int32_t>(column.width());
  });
  Output input = JoinedColumns(s, parts, 2);
  if (s.ok()) {
    // [batch, steps] of the values, with the width that is known.
    const Output leading = Op(s, "Slice", {Op(s, "Shape", {input}), std::vector<int32_t>{0}, std::vector<int32_t>{2}});
    input = Op(s, "Reshape", {input, Op(s, "ConcatV2", {InputList{leading, std::vector<int32_t>{width}}, 0})});
  }
  return {input, s.ok() ? lengths : Output(s, Endpoint{})};
}

}  // namespace millrace
