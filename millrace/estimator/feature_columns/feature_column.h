// Feature columns: how the features of an example become numbers that a model computes with. TensorFlow's
// tf.feature_column, with the same names of variables, so that checkpoints carry over.
//
//   namespace fc = feature_column;
//   const FeatureColumn age = fc::Numeric("age");
//   const FeatureColumn city = fc::CategoricalWithHashBucket("city", 1000);
//   std::vector<FeatureColumn> deep = {age, fc::Embedding(city, 8)};
//   std::vector<FeatureColumn> wide = {city, fc::Crossed({fc::Bucketized(age, {18, 35, 65}), "city"}, 10000)};
//   Output x = InputLayer(scope, features, deep);        // input_layer.h
//   Output logits = LinearModel(scope, features, wide);
//
// A column describes; it has no tensors. One that was described wrongly keeps its error, which names the column, until
// it is used: by InputLayer, LinearModel, MakeParseExampleSpec or a canned Estimator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "millrace/api/initializers.h"
#include "millrace/base/file.h"

namespace millrace {

namespace feature_columns {
class Column;
}

// Cheap to copy; immutable.
class FeatureColumn {
 public:
  // For this folder itself: use the functions below.
  explicit FeatureColumn(std::shared_ptr<const feature_columns::Column> column) : column_(std::move(column)) {}

  // TensorFlow's name: "age", "age_bucketized", "city_embedding", "age_bucketized_X_city".
  const std::string& name() const;
  // What is wrong with its description.
  const Status& status() const;
  // Whether it gives ids, numbers or both, as a bucketized column does.
  bool is_categorical() const;
  bool is_dense() const;
  // Whether it gives one vector for each step of a sequence: see SequenceInputLayer.
  bool is_sequence() const;

  const feature_columns::Column& column() const { return *column_; }
  const std::shared_ptr<const feature_columns::Column>& shared() const { return column_; }

 private:
  std::shared_ptr<const feature_columns::Column> column_;
};

namespace feature_column {

// A function of a feature's tensor, [batch, ...], that keeps its shape.
using Normalizer = std::function<Output(const Scope&, const Input&)>;

struct NumericOptions {
  Shape shape = Shape({1});
  // For examples without the feature, when they are parsed: a number for all elements, or a tensor of `shape`. Without
  // one, such an example is an error.
  std::optional<Tensor> default_value = std::nullopt;
  // Of the feature when it is parsed; the column itself is float.
  DType dtype = DType::kFloat;
  Normalizer normalizer = nullptr;
};
// Numbers as they are.
FeatureColumn Numeric(std::string key, NumericOptions options = {});

// Which of the ranges (-inf, b0), [b0, b1), ..., [bn, inf) a number is in. `source` is a numeric column with at most
// one dimension; `boundaries` increase.
FeatureColumn Bucketized(const FeatureColumn& source, std::vector<float> boundaries);

// Categories. A feature is a sparse tensor of any number of values for each example, or a dense one, in which "" and -1
// stand for no value.

struct IdentityOptions {
  // Of ids that are not in [0, num_buckets); without one they fail the step.
  std::optional<int64_t> default_value = std::nullopt;
};
// Integers that are ids themselves.
FeatureColumn CategoricalWithIdentity(std::string key, int64_t num_buckets, IdentityOptions options = {});

struct HashBucketOptions {
  DType dtype = DType::kString;  // string or an integer type
};
// The id is a hash of the value.
FeatureColumn CategoricalWithHashBucket(std::string key, int64_t hash_bucket_size, HashBucketOptions options = {});

struct VocabularyOptions {
  // The id of values that are not in the vocabulary: -1 stands for no value.
  int64_t default_value = -1;
  // Or instead, the number of ids after the vocabulary, which they get by their hash.
  int64_t num_oov_buckets = 0;
};
// The id is the place in a list, of strings or int64.
FeatureColumn CategoricalWithVocabularyList(std::string key, Tensor vocabulary, VocabularyOptions options = {});
FeatureColumn CategoricalWithVocabularyList(std::string key, const std::vector<std::string>& vocabulary,
                                            VocabularyOptions options = {});

struct VocabularyFileOptions {
  // The number of lines that count; all by default.
  int64_t vocabulary_size = 0;
  int64_t default_value = -1;
  int64_t num_oov_buckets = 0;
  DType dtype = DType::kString;  // string or int64
  FileSystem* files = FileSystem::Posix();
};
// The id is the number of a line, from 0 on. Every task that looks values up must be able to read the file.
FeatureColumn CategoricalWithVocabularyFile(std::string key, std::string file, VocabularyFileOptions options = {});

// The ids of a categorical column with a weight for each, which another feature gives.
FeatureColumn Weighted(const FeatureColumn& categorical, std::string weight_feature);

// What is crossed: the key of a feature of strings or integers, or a categorical column other than a hashed one.
struct CrossKey {
  CrossKey(const char* key) : what(std::string(key)) {}        // NOLINT
  CrossKey(std::string key) : what(std::move(key)) {}          // NOLINT
  CrossKey(FeatureColumn column) : what(std::move(column)) {}  // NOLINT
  std::variant<std::string, FeatureColumn> what;
};
struct CrossedOptions {
  // Of the hash; 0: TensorFlow's default.
  int64_t hash_key = 0;
};
// The hash of each combination of the keys' values.
FeatureColumn Crossed(const std::vector<CrossKey>& keys, int64_t hash_bucket_size, CrossedOptions options = {});

// A vector with a 1, or the number of occurrences, for each id of a categorical column.
FeatureColumn Indicator(const FeatureColumn& categorical);

struct EmbeddingOptions {
  std::string combiner = "mean";  // of several ids: mean, sqrtn or sum
  // By default a truncated normal distribution with a standard deviation of 1 / sqrt(dimension).
  Initializer initializer = nullptr;
  // The checkpoint that the table begins with, and its name there.
  std::string ckpt_to_load_from = {};
  std::string tensor_name_in_ckpt = {};
  std::optional<double> max_norm = std::nullopt;
  bool trainable = true;
};
// A learnt vector for each id.
FeatureColumn Embedding(const FeatureColumn& categorical, int64_t dimension, EmbeddingOptions options = {});

struct SharedEmbeddingOptions {
  std::string combiner = "mean";
  Initializer initializer = nullptr;
  // By default the names of the categorical columns, "a_b_shared_embedding".
  std::string shared_embedding_collection_name = {};
  std::string ckpt_to_load_from = {};
  std::string tensor_name_in_ckpt = {};
  std::optional<double> max_norm = std::nullopt;
  bool trainable = true;
};
// The same with one table for several columns of the same number of ids; one column for each of them.
std::vector<FeatureColumn> SharedEmbedding(const std::vector<FeatureColumn>& categorical, int64_t dimension,
                                           SharedEmbeddingOptions options = {});

// For sequences: the values of an example are steps, one after another.
FeatureColumn SequenceCategoricalWithIdentity(std::string key, int64_t num_buckets, IdentityOptions options = {});
FeatureColumn SequenceCategoricalWithHashBucket(std::string key, int64_t hash_bucket_size,
                                                HashBucketOptions options = {});
FeatureColumn SequenceCategoricalWithVocabularyList(std::string key, Tensor vocabulary, VocabularyOptions options = {});
FeatureColumn SequenceCategoricalWithVocabularyFile(std::string key, std::string file,
                                                    VocabularyFileOptions options = {});
struct SequenceNumericOptions {
  Shape shape = Shape({1});  // of one step
  float padding_value = 0;   // after the end of a sequence
  DType dtype = DType::kFloat;
  Normalizer normalizer = nullptr;
};
FeatureColumn SequenceNumeric(std::string key, SequenceNumericOptions options = {});

}  // namespace feature_column
}  // namespace millrace
