// The columns' own side: what each kind implements. Internal to this folder.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/partitioned_variable.h"
#include "millrace/estimator/feature_columns/input_layer.h"

namespace millrace {

// The ids of each example: [batch, n], or [batch, steps, n] for a sequence.
struct IdsAndWeights {
  SparseOutput ids = {};
  SparseOutput weights = {};  // empty, or with the indices of `ids`
};

// The features of one batch, and what columns have made of them so far. Not thread-safe.
class FeatureTensors {
 public:
  explicit FeatureTensors(OutputMap features) : features_(std::move(features)) {}

  // Each of these fails the scope with an error that names the column.
  //
  // A dense tensor with at least two dimensions: [batch] becomes [batch, 1].
  Output Dense(const Scope& scope, const feature_columns::Column& column, const std::string& key);
  bool IsSparse(const std::string& key) const { return features_.contains(key + "/values"); }
  // As a sparse tensor; the values of a dense one that stand for nothing ("", -1 and 0.0 for floats) are left out.
  SparseOutput Sparse(const Scope& scope, const feature_columns::Column& column, const std::string& key);

  // The ids of a categorical column, and the numbers of a numeric one, computed by the first call.
  IdsAndWeights IdsOf(const Scope& scope, const feature_columns::Column& column);
  Output NumbersOf(const Scope& scope, const feature_columns::Column& column);

 private:
  const Output* Find(const Scope& scope, const feature_columns::Column& column, const std::string& key);

  const OutputMap features_;
  std::map<const feature_columns::Column*, IdsAndWeights> ids_;
  std::map<const feature_columns::Column*, Output> numbers_;
  std::map<std::string, SparseOutput> sparse_;
};

namespace feature_columns {

// The values of a sequence, and how many steps each example has.
struct SequenceValues {
  Output values = {};  // [batch, steps, width]
  Output lengths = {};
};

// Where a column's ops and variables go.
struct ColumnScope {
  Scope scope;  // the layer's; a column opens a variable scope of its own name in it
  bool trainable = true;
};

// Immutable, and used by any number of graphs.
class Column {
 public:
  virtual ~Column() = default;

  const std::string& name() const { return name_; }
  // The name with characters that scopes may have.
  std::string scope_name() const;
  const Status& status() const { return status_; }

  virtual bool is_categorical() const { return false; }
  virtual bool is_dense() const { return false; }
  virtual bool is_sequence() const { return false; }
  // Adds the features that it reads.
  virtual Status AddFeatures(ParseSpec* spec) const = 0;

  // Of a categorical column.
  virtual int64_t num_buckets() const { return 0; }
  virtual IdsAndWeights Ids(const Scope& scope, FeatureTensors& features) const;
  // Whether ids may be negative, which stands for no value.
  virtual bool may_have_invalid_ids() const { return false; }
  // Whether it may be a part of a Crossed.
  virtual bool may_be_crossed() const { return is_categorical(); }

  // Of a dense column: the width of [batch, width].
  virtual int64_t width() const { return 0; }
  virtual Output Values(const ColumnScope& where, FeatureTensors& features) const;
  // Of a dense column of a sequence.
  virtual SequenceValues Sequence(const ColumnScope& where, FeatureTensors& features) const;
  // Of a numeric one, before it is flattened: float [batch, shape].
  virtual Output Numbers(const Scope& scope, FeatureTensors& features) const;

  // Errors with the column's name.
  template <typename... Args>
  Status Wrong(const Args&... what) const {
    return InvalidArgument("feature column '", name_, "': ", what...);
  }

 protected:
  explicit Column(std::string name) : name_(std::move(name)) {}
  // Keeps the first error.
  void Check(const Status& status) { status_.Update(status); }
  template <typename... Args>
  void CheckThat(bool holds, const Args&... otherwise) {
    if (!holds) status_.Update(Wrong(otherwise...));
  }
  // Checks that `other` is as it must be.
  void CheckPart(const FeatureColumn& other);

 private:
  const std::string name_;
  Status status_;
};

// Adds `feature` under `key`, or fails if another column needs it in another form.
Status AddFeature(ParseSpec* spec, const Column& column, const std::string& key, const FeatureSpec& feature);

// The number of steps of each example of a sparse tensor whose second dimension is `per_step` values for each step.
Output SequenceLengths(const Scope& scope, const SparseOutput& tensor, int64_t per_step);

// Fails a step with an error that names the column, unless `holds` (bool, scalar). Returns `x` after that check.
Output CheckedBy(const Scope& scope, const Column& column, const std::string& what, const Output& holds,
                 const Output& seen, const Output& x);

}  // namespace feature_columns
}  // namespace millrace
