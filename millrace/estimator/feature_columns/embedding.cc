// Columns that make vectors of ids: embeddings and indicators, and columns of sequences.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "millrace/api/reductions.h"
#include "millrace/estimator/feature_columns/column.h"
#include "millrace/train/checkpoint/warm_start.h"

namespace millrace {
namespace feature_columns {
namespace {

using api_internal::Cast;

class EmbeddingColumn : public Column {
 public:
  // `table_scope` is the name of the scope with the table, if it is not this column's.
  EmbeddingColumn(std::string name, const FeatureColumn& categorical, int64_t dimension,
                  feature_column::EmbeddingOptions options, std::string table_scope = {})
      : Column(std::move(name)),
        categorical_(categorical),
        dimension_(dimension),
        options_(std::move(options)),
        table_scope_(std::move(table_scope)) {
    CheckPart(categorical);
    CheckThat(categorical.is_categorical(), "'", categorical.name(), "' is not a categorical column");
    CheckThat(dimension > 0, "the dimension is ", dimension, ", and must be positive");
    const StatusOr<Combiner> combiner = ParseCombiner(options_.combiner);
    if (combiner.ok()) {
      combiner_ = *combiner;
    } else {
      CheckThat(false, combiner.status().message());
    }
    CheckThat(options_.ckpt_to_load_from.empty() == options_.tensor_name_in_ckpt.empty(),
              "give both of ckpt_to_load_from and tensor_name_in_ckpt, or neither");
    CheckThat(!options_.max_norm || *options_.max_norm > 0, "max_norm is ", options_.max_norm.value_or(0),
              ", and must be positive");
    if (options_.initializer == nullptr)
      options_.initializer = init::TruncatedNormal({.stddev = 1 / std::sqrt(static_cast<double>(dimension))});
  }

  bool is_dense() const override { return !categorical_.is_sequence(); }
  bool is_sequence() const override { return categorical_.is_sequence(); }
  int64_t width() const override { return dimension_; }
  Status AddFeatures(ParseSpec* spec) const override { return categorical_.column().AddFeatures(spec); }

  Output Values(const ColumnScope& where, FeatureTensors& features) const override {
    const IdsAndWeights ids = features.IdsOf(where.scope, categorical_.column());
    if (ids.ids.empty()) return Output(where.scope, Endpoint{});
    return LookUpRows(where, ids);
  }

  SequenceValues Sequence(const ColumnScope& where, FeatureTensors& features) const override {
    const IdsAndWeights ids = features.IdsOf(where.scope, categorical_.column());
    if (ids.ids.empty()) return {};
    return {LookUpRows(where, ids), SequenceLengths(where.scope, ids.ids, 1)};
  }

 private:
  Output LookUpRows(const ColumnScope& where, const IdsAndWeights& ids) const {
    const bool shared = !table_scope_.empty();
    const Scope s =
        shared ? where.scope.VariableScope(table_scope_, Reuse::kAuto) : where.scope.VariableScope(scope_name());
    const PartitionedVar table(s, "embedding_weights", Shape({categorical_.column().num_buckets(), dimension_}),
                               options_.initializer, {.trainable = options_.trainable && where.trainable});
    if (!s.ok()) return Output(s, Endpoint{});
    if (!options_.ckpt_to_load_from.empty() && !table.reused()) {
      const Status loaded =
          InitFromCheckpoint(s, options_.ckpt_to_load_from, {{options_.tensor_name_in_ckpt, table.name()}});
      s.UpdateStatus(WithPrefix(absl::StrCat("feature column '", name(), "': "), loaded));
    }
    return SafeEmbeddingLookupSparse(s, table, ids.ids, ids.weights,
                                     {.combiner = combiner_,
                                      .max_norm = options_.max_norm,
                                      .may_have_invalid_ids = categorical_.column().may_have_invalid_ids()});
  }

  const FeatureColumn categorical_;
  const int64_t dimension_;
  feature_column::EmbeddingOptions options_;
  const std::string table_scope_;
  Combiner combiner_ = Combiner::kMean;
};

class IndicatorColumn : public Column {
 public:
  explicit IndicatorColumn(const FeatureColumn& categorical)
      : Column(categorical.name() + "_indicator"), categorical_(categorical) {
    CheckPart(categorical);
    CheckThat(categorical.is_categorical(), "'", categorical.name(), "' is not a categorical column");
  }

  bool is_dense() const override { return !categorical_.is_sequence(); }
  bool is_sequence() const override { return categorical_.is_sequence(); }
  int64_t width() const override { return categorical_.column().num_buckets(); }
  Status AddFeatures(ParseSpec* spec) const override { return categorical_.column().AddFeatures(spec); }

  Output Values(const ColumnScope& where, FeatureTensors& features) const override {
    return Counts(where.scope.SubScope(scope_name()), features.IdsOf(where.scope, categorical_.column()), 1);
  }
  SequenceValues Sequence(const ColumnScope& where, FeatureTensors& features) const override {
    const Scope s = where.scope.SubScope(scope_name());
    const IdsAndWeights ids = features.IdsOf(where.scope, categorical_.column());
    if (ids.ids.empty()) return {};
    return {Counts(s, ids, 2), SequenceLengths(s, ids.ids, 1)};
  }

 private:
  // The number of times, or the sum of the weights, of each id, in the first `dims` dimensions.
  Output Counts(const Scope& s, const IdsAndWeights& ids, int32_t dims) const {
    if (ids.ids.empty() || !s.ok()) return Output(s, Endpoint{});
    Output indices = ids.ids.indices, values = ids.ids.values, weights = ids.weights.values;
    if (categorical_.column().may_have_invalid_ids()) {
      const Output valid = Op(s, "GreaterEqual", {values, Input(int64_t{0}).In(s, DType::kInt64)});
      const Output at = Op(s, "Reshape", {Op(s, "Where", {valid}), std::vector<int32_t>{-1}});
      indices = Op(s, "GatherV2", {indices, at, 0});
      values = Op(s, "GatherV2", {values, at, 0});
      if (!weights.empty()) weights = Op(s, "GatherV2", {weights, at, 0});
    }
    if (weights.empty()) weights = Op(s, "OnesLike", {Cast(s, values, DType::kFloat)});
    const Output leading = Op(s, "Slice", {indices, std::vector<int32_t>{0, 0}, std::vector<int32_t>{-1, dims}});
    const Output place = Op(s, "ConcatV2", {InputList{leading, Op(s, "ExpandDims", {values, 1})}, 1});
    const Output rows = Op(s, "Slice", {ids.ids.dense_shape, std::vector<int32_t>{0}, std::vector<int32_t>{dims}});
    const Output shape = Op(s, "ConcatV2", {InputList{rows, std::vector<int64_t>{width()}}, 0});
    return Op(s, "ScatterNd", {place, weights, shape});
  }

  const FeatureColumn categorical_;
};

// The ids of a categorical column, [batch, steps], as those of sequences, [batch, steps, 1].
class SequenceCategoricalColumn : public Column {
 public:
  explicit SequenceCategoricalColumn(const FeatureColumn& categorical)
      : Column(categorical.name()), categorical_(categorical) {
    CheckPart(categorical);
  }
  bool is_categorical() const override { return true; }
  bool is_sequence() const override { return true; }
  bool may_be_crossed() const override { return false; }
  bool may_have_invalid_ids() const override { return categorical_.column().may_have_invalid_ids(); }
  int64_t num_buckets() const override { return categorical_.column().num_buckets(); }
  Status AddFeatures(ParseSpec* spec) const override { return categorical_.column().AddFeatures(spec); }
  IdsAndWeights Ids(const Scope& s, FeatureTensors& features) const override {
    IdsAndWeights result = features.IdsOf(s, categorical_.column());
    if (result.ids.empty() || !s.ok()) return result;
    const PartialShape shape = result.ids.indices.shape();
    if (shape.known_rank() && shape.rank() == 2 && shape.dim(1) == 3) return result;
    const Output leading = Op(s, "Slice", {result.ids.dense_shape, std::vector<int32_t>{0}, std::vector<int32_t>{2}});
    const Operation reshaped = AddOp(s, "SparseReshape",
                                     {result.ids.indices, result.ids.dense_shape,
                                      Op(s, "ConcatV2", {InputList{leading, std::vector<int64_t>{-1}}, 0})});
    result.ids.indices = reshaped.output(0);
    result.ids.dense_shape = reshaped.output(1);
    return result;
  }

 private:
  const FeatureColumn categorical_;
};

class SequenceNumericColumn : public Column {
 public:
  SequenceNumericColumn(std::string key, feature_column::SequenceNumericOptions options)
      : Column(key), key_(std::move(key)), options_(std::move(options)) {
    CheckThat(!key_.empty(), "has no key");
    CheckThat(options_.shape.num_elements() > 0, "has shape ", options_.shape.ToString());
    CheckThat(options_.dtype == DType::kFloat || options_.dtype == DType::kInt64, "has type ", options_.dtype,
              ", and must be float or int64");
  }
  bool is_sequence() const override { return true; }
  int64_t width() const override { return options_.shape.num_elements(); }
  Status AddFeatures(ParseSpec* spec) const override {
    return AddFeature(spec, *this, key_, VarLenFeature(options_.dtype));
  }
  SequenceValues Sequence(const ColumnScope& where, FeatureTensors& features) const override {
    const Scope s = where.scope.SubScope(scope_name());
    if (!features.IsSparse(key_)) {
      features.Dense(s, *this, key_);  // if there is none, that is the error
      s.UpdateStatus(Wrong("the feature '", key_, "' is a dense tensor, and must be a sparse one"));
      return {};
    }
    const SparseOutput x = features.Sparse(s, *this, key_);
    if (x.values.dtype() == DType::kString) {
      s.UpdateStatus(Wrong("the feature '", key_, "' has type string, and must be a number"));
      return {};
    }
    Output dense = Op(s, "SparseToDense",
                      {x.indices, x.dense_shape, Cast(s, x.values, DType::kFloat),
                       Input(options_.padding_value).In(s, DType::kFloat)});
    if (options_.normalizer != nullptr) dense = options_.normalizer(s, dense);
    const Output batch = Op(s, "Slice", {x.dense_shape, std::vector<int32_t>{0}, std::vector<int32_t>{1}});
    const Output shape = Op(s, "ConcatV2", {InputList{batch, std::vector<int64_t>{-1, width()}}, 0});
    return {Op(s, "Reshape", {Cast(s, dense, DType::kFloat), shape}), SequenceLengths(s, x, width())};
  }

 private:
  const std::string key_;
  const feature_column::SequenceNumericOptions options_;
};

FeatureColumn AsSequence(const FeatureColumn& categorical) {
  return FeatureColumn(std::make_shared<SequenceCategoricalColumn>(categorical));
}

}  // namespace
}  // namespace feature_columns

namespace feature_column {

using feature_columns::AsSequence;

FeatureColumn Embedding(const FeatureColumn& categorical, int64_t dimension, EmbeddingOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::EmbeddingColumn>(categorical.name() + "_embedding",
                                                                          categorical, dimension, std::move(options)));
}

std::vector<FeatureColumn> SharedEmbedding(const std::vector<FeatureColumn>& categorical, int64_t dimension,
                                           SharedEmbeddingOptions options) {
  std::vector<std::string> names;
  for (const FeatureColumn& column : categorical) names.push_back(column.name());
  std::sort(names.begin(), names.end());
  std::string collection = options.shared_embedding_collection_name;
  if (collection.empty()) collection = absl::StrJoin(names, "_") + "_shared_embedding";
  std::vector<FeatureColumn> columns;
  for (const FeatureColumn& column : categorical) {
    columns.emplace_back(std::make_shared<feature_columns::EmbeddingColumn>(
        column.name() + "_shared_embedding", column, dimension,
        EmbeddingOptions{.combiner = options.combiner,
                         .initializer = options.initializer,
                         .ckpt_to_load_from = options.ckpt_to_load_from,
                         .tensor_name_in_ckpt = options.tensor_name_in_ckpt,
                         .max_norm = options.max_norm,
                         .trainable = options.trainable},
        collection));
  }
  return columns;
}

FeatureColumn Indicator(const FeatureColumn& categorical) {
  return FeatureColumn(std::make_shared<feature_columns::IndicatorColumn>(categorical));
}

FeatureColumn SequenceCategoricalWithIdentity(std::string key, int64_t num_buckets, IdentityOptions options) {
  return AsSequence(CategoricalWithIdentity(std::move(key), num_buckets, options));
}
FeatureColumn SequenceCategoricalWithHashBucket(std::string key, int64_t hash_bucket_size, HashBucketOptions options) {
  return AsSequence(CategoricalWithHashBucket(std::move(key), hash_bucket_size, options));
}
FeatureColumn SequenceCategoricalWithVocabularyList(std::string key, Tensor vocabulary, VocabularyOptions options) {
  return AsSequence(CategoricalWithVocabularyList(std::move(key), std::move(vocabulary), options));
}
FeatureColumn SequenceCategoricalWithVocabularyFile(std::string key, std::string file, VocabularyFileOptions options) {
  return AsSequence(CategoricalWithVocabularyFile(std::move(key), std::move(file), options));
}
FeatureColumn SequenceNumeric(std::string key, SequenceNumericOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::SequenceNumericColumn>(std::move(key), std::move(options)));
}

}  // namespace feature_column
}  // namespace millrace
