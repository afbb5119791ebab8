// Columns that give ids: by identity, hash, vocabulary, with weights and in crosses.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/api/lookup_table.h"
#include "millrace/api/reductions.h"
#include "millrace/estimator/feature_columns/column.h"

namespace millrace {
namespace feature_columns {
namespace {

using api_internal::Cast;

class KeyedCategorical : public Column {
 public:
  KeyedCategorical(std::string key, DType dtype) : Column(key), key_(std::move(key)), dtype_(dtype) {
    CheckThat(!key_.empty(), "has no key");
    CheckThat(dtype_ == DType::kString || IsInteger(dtype_), "has type ", dtype_,
              ", which is neither string nor integer");
  }
  bool is_categorical() const override { return true; }
  Status AddFeatures(ParseSpec* spec) const override {
    return AddFeature(spec, *this, key_, VarLenFeature(dtype_ == DType::kString ? dtype_ : DType::kInt64));
  }
  IdsAndWeights Ids(const Scope& scope, FeatureTensors& features) const override {
    SparseOutput values = features.Sparse(scope, *this, key_);
    if (values.empty() || !scope.ok()) return {};
    const DType given = values.values.dtype();
    if (dtype_ == DType::kString ? given != DType::kString : !IsInteger(given)) {
      scope.UpdateStatus(Wrong("the feature '", key_, "' has type ", given, ", and must be ",
                               dtype_ == DType::kString ? "string" : "an integer type"));
      return {};
    }
    values.values = IdsOfValues(scope, values.values);
    return {.ids = values};
  }

 protected:
  // int64, of the shape of `values`.
  virtual Output IdsOfValues(const Scope& scope, const Output& values) const = 0;

  const std::string key_;
  const DType dtype_;
};

class IdentityColumn : public KeyedCategorical {
 public:
  IdentityColumn(std::string key, int64_t num_buckets, feature_column::IdentityOptions options)
      : KeyedCategorical(std::move(key), DType::kInt64), num_buckets_(num_buckets), options_(options) {
    CheckThat(num_buckets > 0, "num_buckets is ", num_buckets, ", and must be positive");
    CheckThat(!options_.default_value || (*options_.default_value >= 0 && *options_.default_value < num_buckets),
              "default_value is ", options_.default_value.value_or(0), ", which is not in [0, ", num_buckets, ")");
  }
  int64_t num_buckets() const override { return num_buckets_; }

 protected:
  Output IdsOfValues(const Scope& s, const Output& values) const override {
    const Output ids = Cast(s, values, DType::kInt64);
    const auto number = [&](int64_t n) { return Input(n).In(s, DType::kInt64); };
    const Output inside =
        Op(s, "LogicalAnd", {Op(s, "GreaterEqual", {ids, number(0)}), Op(s, "Less", {ids, number(num_buckets_)})});
    if (options_.default_value) return Op(s, "SelectV2", {inside, ids, number(*options_.default_value)});
    return CheckedBy(s, *this, absl::StrCat("ids must be in [0, ", num_buckets_, "); they are"),
                     Op(s, "All", {inside, std::vector<int32_t>{0}}), ids, ids);
  }

 private:
  const int64_t num_buckets_;
  const feature_column::IdentityOptions options_;
};

class HashedColumn : public KeyedCategorical {
 public:
  HashedColumn(std::string key, int64_t buckets, feature_column::HashBucketOptions options)
      : KeyedCategorical(std::move(key), options.dtype), buckets_(buckets) {
    CheckThat(buckets > 0, "hash_bucket_size is ", buckets, ", and must be positive");
  }
  int64_t num_buckets() const override { return buckets_; }
  // A hash of a hash would only lose values.
  bool may_be_crossed() const override { return false; }

 protected:
  Output IdsOfValues(const Scope& s, const Output& values) const override {
    const Output text = values.dtype() == DType::kString ? values : Op(s, "AsString", {values});
    return Op(s, "StringToHashBucketFast", {text}, {{"num_buckets", buckets_}});
  }

 private:
  const int64_t buckets_;
};

class VocabularyColumn : public KeyedCategorical {
 public:
  VocabularyColumn(std::string key, DType dtype, int64_t default_value, int64_t num_oov_buckets)
      : KeyedCategorical(std::move(key), dtype), default_(default_value), oov_(num_oov_buckets) {
    CheckThat(oov_ >= 0, "num_oov_buckets is ", oov_, ", and must not be negative");
    CheckThat(oov_ == 0 || default_ == -1, "has num_oov_buckets and a default_value; give one of them");
    CheckThat(default_ >= -1, "default_value is ", default_);
  }
  int64_t num_buckets() const override { return size_ + oov_; }
  bool may_have_invalid_ids() const override { return oov_ == 0 && default_ < 0; }

 protected:
  void SetSize(int64_t size) {
    size_ = size;
    CheckThat(default_ < size, "default_value is ", default_, ", and the vocabulary has ", size, " values");
  }
  const int64_t default_;
  const int64_t oov_;
  int64_t size_ = 0;
};

class VocabularyListColumn : public VocabularyColumn {
 public:
  VocabularyListColumn(std::string key, Tensor vocabulary, feature_column::VocabularyOptions options)
      : VocabularyColumn(std::move(key), vocabulary.dtype(), options.default_value, options.num_oov_buckets),
        vocabulary_(std::move(vocabulary)) {
    CheckThat(vocabulary_.rank() == 1 && vocabulary_.num_elements() > 0, "the vocabulary has shape ",
              vocabulary_.shape().ToString(), ", not that of a list with at least one value");
    if (status().ok() && vocabulary_.dtype() != DType::kString) {
      const StatusOr<Tensor> wide = WideIntegers(vocabulary_);
      if (wide.ok()) vocabulary_ = *wide;
      Check(wide.status());
    }
    if (status().ok()) SetSize(vocabulary_.num_elements());
    // The table itself checks that values are unique; here the error can name the column.
    if (status().ok()) Check(Duplicates());
  }

 protected:
  Output IdsOfValues(const Scope& s, const Output& values) const override {
    return IndexTableFromTensor(s, vocabulary_, {.num_oov_buckets = oov_, .default_value = default_}).Lookup(s, values);
  }

 private:
  static StatusOr<Tensor> WideIntegers(const Tensor& narrow) {
    if (narrow.dtype() == DType::kInt64) return narrow;
    if (narrow.dtype() != DType::kInt32) return InvalidArgument("a vocabulary has type ", narrow.dtype());
    Tensor wide(DType::kInt64, narrow.shape());
    for (int64_t i = 0; i < narrow.num_elements(); ++i) wide.data<int64_t>()[i] = narrow.data<int32_t>()[i];
    return wide;
  }
  Status Duplicates() const {
    std::vector<std::string> values;
    for (int64_t i = 0; i < vocabulary_.num_elements(); ++i) {
      values.push_back(vocabulary_.dtype() == DType::kString ? vocabulary_.data<std::string>()[i]
                                                             : absl::StrCat(vocabulary_.data<int64_t>()[i]));
    }
    std::sort(values.begin(), values.end());
    const auto twice = std::adjacent_find(values.begin(), values.end());
    return twice == values.end() ? absl::OkStatus() : Wrong("the vocabulary has '", *twice, "' twice");
  }

  Tensor vocabulary_;
};

class VocabularyFileColumn : public VocabularyColumn {
 public:
  VocabularyFileColumn(std::string key, std::string file, const feature_column::VocabularyFileOptions& options)
      : VocabularyColumn(std::move(key), options.dtype, options.default_value, options.num_oov_buckets),
        file_(std::move(file)) {
    CheckThat(options.vocabulary_size >= 0, "vocabulary_size is ", options.vocabulary_size);
    CheckThat(options.dtype == DType::kString || options.dtype == DType::kInt64, "has type ", options.dtype,
              ", and the keys of a vocabulary file are string or int64");
    if (!status().ok()) return;
    const StatusOr<std::string> text = ReadWholeFile(options.files, file_);
    if (!text.ok()) {
      Check(Status(text.status().code(), absl::StrCat("feature column '", name(), "': the vocabulary file ", file_,
                                                      " cannot be read: ", text.status().message())));
      return;
    }
    const int64_t lines = std::count(text->begin(), text->end(), '\n') + (!text->empty() && text->back() != '\n');
    CheckThat(lines > 0, "the vocabulary file ", file_, " is empty");
    CheckThat(options.vocabulary_size <= lines, "vocabulary_size is ", options.vocabulary_size,
              ", and the vocabulary file ", file_, " has ", lines, " lines");
    SetSize(options.vocabulary_size > 0 ? options.vocabulary_size : lines);
  }

 protected:
  Output IdsOfValues(const Scope& s, const Output& values) const override {
    return IndexTableFromFile(
               s, file_,
               {.num_oov_buckets = oov_, .default_value = default_, .vocabulary_size = size_, .key_dtype = dtype_})
        .Lookup(s, values);
  }

 private:
  const std::string file_;
};

class WeightedColumn : public Column {
 public:
  WeightedColumn(const FeatureColumn& categorical, std::string weight_feature)
      : Column(absl::StrCat(categorical.name(), "_weighted_by_", weight_feature)),
        categorical_(categorical),
        weight_feature_(std::move(weight_feature)) {
    CheckPart(categorical);
    CheckThat(categorical.is_categorical(), "'", categorical.name(), "' is not a categorical column");
    CheckThat(!weight_feature_.empty(), "has no weight feature");
  }
  bool is_categorical() const override { return true; }
  bool is_sequence() const override { return categorical_.is_sequence(); }
  bool may_be_crossed() const override { return false; }
  bool may_have_invalid_ids() const override { return categorical_.column().may_have_invalid_ids(); }
  int64_t num_buckets() const override { return categorical_.column().num_buckets(); }
  Status AddFeatures(ParseSpec* spec) const override {
    MR_RETURN_IF_ERROR(categorical_.column().AddFeatures(spec));
    return AddFeature(spec, *this, weight_feature_, VarLenFeature(DType::kFloat));
  }
  IdsAndWeights Ids(const Scope& scope, FeatureTensors& features) const override {
    IdsAndWeights result = features.IdsOf(scope, categorical_.column());
    if (result.ids.empty()) return result;
    if (features.IsSparse(weight_feature_)) {
      result.weights = features.Sparse(scope, *this, weight_feature_);
    } else {
      const Output dense = features.Dense(scope, *this, weight_feature_);
      if (dense.empty()) return {};
      result.weights = {result.ids.indices, Op(scope, "GatherNd", {dense, result.ids.indices}), result.ids.dense_shape};
    }
    const DType dtype = result.weights.values.dtype();
    if (dtype == DType::kString || dtype == DType::kBool) {
      scope.UpdateStatus(Wrong("the weights '", weight_feature_, "' have type ", dtype, ", and must be numbers"));
      return {};
    }
    result.weights.values = Cast(scope, result.weights.values, DType::kFloat);
    return result;
  }

 private:
  const FeatureColumn categorical_;
  const std::string weight_feature_;
};

// TensorFlow's default.
constexpr int64_t kDefaultHashKey = 0xDECAFCAFFE;

class CrossedColumn : public Column {
 public:
  CrossedColumn(const std::vector<feature_column::CrossKey>& keys, int64_t buckets,
                feature_column::CrossedOptions options)
      : Column(NameOf(keys)), buckets_(buckets), hash_key_(options.hash_key != 0 ? options.hash_key : kDefaultHashKey) {
    CheckThat(keys.size() >= 2, "crosses ", keys.size(), " keys, and needs at least two");
    CheckThat(buckets > 0, "hash_bucket_size is ", buckets, ", and must be positive");
    for (const feature_column::CrossKey& key : keys) {
      if (const auto* const column = std::get_if<FeatureColumn>(&key.what)) {
        CheckPart(*column);
        CheckThat(column->is_categorical(), "'", column->name(), "' is not a categorical column");
        CheckThat(!column->is_sequence(), "'", column->name(), "' is a column of sequences");
        CheckThat(!column->is_categorical() || column->column().may_be_crossed(), "'", column->name(),
                  "' cannot be crossed, because it is hashed or has weights: give the key of its feature");
        if (const auto* const inner = dynamic_cast<const CrossedColumn*>(&column->column())) {
          leaves_.insert(leaves_.end(), inner->leaves_.begin(), inner->leaves_.end());
          continue;
        }
      } else {
        CheckThat(!std::get<std::string>(key.what).empty(), "has a key without a name");
      }
      leaves_.push_back(key);
    }
  }
  bool is_categorical() const override { return true; }
  int64_t num_buckets() const override { return buckets_; }
  Status AddFeatures(ParseSpec* spec) const override {
    for (const feature_column::CrossKey& leaf : leaves_) {
      if (const auto* const column = std::get_if<FeatureColumn>(&leaf.what)) {
        MR_RETURN_IF_ERROR(column->column().AddFeatures(spec));
      } else {
        MR_RETURN_IF_ERROR(AddFeature(spec, *this, std::get<std::string>(leaf.what), VarLenFeature(DType::kString)));
      }
    }
    return absl::OkStatus();
  }

  IdsAndWeights Ids(const Scope& s, FeatureTensors& features) const override {
    std::vector<Input> indices, values, shapes, dense;
    const auto add = [&](const SparseOutput& x) {
      indices.emplace_back(x.indices);
      values.emplace_back(Wide(s, x.values));
      shapes.emplace_back(x.dense_shape);
    };
    for (const feature_column::CrossKey& leaf : leaves_) {
      if (const auto* const column = std::get_if<FeatureColumn>(&leaf.what)) {
        add(features.IdsOf(s, column->column()).ids);
      } else if (const auto& key = std::get<std::string>(leaf.what); features.IsSparse(key)) {
        add(features.Sparse(s, *this, key));
      } else {
        dense.emplace_back(Wide(s, features.Dense(s, *this, key)));
      }
      if (!s.ok()) return {};
    }
    const auto count = static_cast<int64_t>(indices.size());
    const Operation cross =
        AddOp(s, "SparseCross", {InputList(indices), InputList(values), InputList(shapes), InputList(dense)},
              {{"hashed_output", true},
               {"num_buckets", buckets_},
               {"hash_key", hash_key_},
               {"N", count},
               {"out_type", DType::kInt64},
               {"internal_type", DType::kInt64}});
    return {.ids = {cross.output(0), cross.output(1), cross.output(2)}};
  }

 private:
  // The names of the leaves, sorted.
  static std::string NameOf(const std::vector<feature_column::CrossKey>& keys) {
    std::vector<std::string> names;
    for (const feature_column::CrossKey& key : keys) {
      const auto* const column = std::get_if<FeatureColumn>(&key.what);
      const auto* const inner = column == nullptr ? nullptr : dynamic_cast<const CrossedColumn*>(&column->column());
      if (inner != nullptr) {
        for (const feature_column::CrossKey& leaf : inner->leaves_) names.push_back(LeafName(leaf));
      } else {
        names.push_back(LeafName(key));
      }
    }
    std::sort(names.begin(), names.end());
    return absl::StrJoin(names, "_X_");
  }
  static std::string LeafName(const feature_column::CrossKey& leaf) {
    const auto* const column = std::get_if<FeatureColumn>(&leaf.what);
    return column != nullptr ? column->name() : std::get<std::string>(leaf.what);
  }
  // Strings or int64.
  Output Wide(const Scope& s, const Output& x) const {
    if (x.empty() || x.dtype() == DType::kString) return x;
    if (IsInteger(x.dtype())) return Cast(s, x, DType::kInt64);
    s.UpdateStatus(Wrong("the feature ", x.name(), " has type ", x.dtype(), "; only strings and integers are crossed"));
    return x;
  }

  const int64_t buckets_;
  const int64_t hash_key_;
  std::vector<feature_column::CrossKey> leaves_;
};

}  // namespace
}  // namespace feature_columns

namespace feature_column {

FeatureColumn CategoricalWithIdentity(std::string key, int64_t num_buckets, IdentityOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::IdentityColumn>(std::move(key), num_buckets, options));
}
FeatureColumn CategoricalWithHashBucket(std::string key, int64_t hash_bucket_size, HashBucketOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::HashedColumn>(std::move(key), hash_bucket_size, options));
}
FeatureColumn CategoricalWithVocabularyList(std::string key, Tensor vocabulary, VocabularyOptions options) {
  return FeatureColumn(
      std::make_shared<feature_columns::VocabularyListColumn>(std::move(key), std::move(vocabulary), options));
}
FeatureColumn CategoricalWithVocabularyList(std::string key, const std::vector<std::string>& vocabulary,
                                            VocabularyOptions options) {
  return CategoricalWithVocabularyList(std::move(key), Tensor::FromVector(vocabulary), options);
}
FeatureColumn CategoricalWithVocabularyFile(std::string key, std::string file, VocabularyFileOptions options) {
  return FeatureColumn(
      std::make_shared<feature_columns::VocabularyFileColumn>(std::move(key), std::move(file), options));
}
FeatureColumn Weighted(const FeatureColumn& categorical, std::string weight_feature) {
  return FeatureColumn(std::make_shared<feature_columns::WeightedColumn>(categorical, std::move(weight_feature)));
}
FeatureColumn Crossed(const std::vector<CrossKey>& keys, int64_t hash_bucket_size, CrossedOptions options) {
  return FeatureColumn(std::make_shared<feature_columns::CrossedColumn>(keys, hash_bucket_size, options));
}

}  // namespace feature_column
}  // namespace millrace
