#include "millrace/estimator/feature_columns/column.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "millrace/api/reductions.h"

namespace millrace {

const std::string& FeatureColumn::name() const { return column_->name(); }
const Status& FeatureColumn::status() const { return column_->status(); }
bool FeatureColumn::is_categorical() const { return column_->is_categorical(); }
bool FeatureColumn::is_dense() const { return column_->is_dense(); }
bool FeatureColumn::is_sequence() const { return column_->is_sequence(); }

const Output* FeatureTensors::Find(const Scope& scope, const feature_columns::Column& column, const std::string& key) {
  if (!scope.ok()) return nullptr;
  const auto found = features_.find(key);
  if (found != features_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : features_) names.push_back(name);
  scope.UpdateStatus(NotFound("feature column '", column.name(), "': there is no feature '", key,
                              "'; the features are: ", absl::StrJoin(names, ", ")));
  return nullptr;
}

Output FeatureTensors::Dense(const Scope& scope, const feature_columns::Column& column, const std::string& key) {
  if (IsSparse(key)) {
    scope.UpdateStatus(column.Wrong("the feature '", key, "' is a sparse tensor, and must be a dense one"));
    return Output(scope, Endpoint{});
  }
  const Output* const found = Find(scope, column, key);
  if (found == nullptr) return Output(scope, Endpoint{});
  const PartialShape shape = found->shape();
  if (!shape.known_rank() || shape.rank() == 0) {
    scope.UpdateStatus(column.Wrong("the feature '", key, "' has shape ", shape.ToString(),
                                    ", and must have a dimension for the examples of the batch"));
    return Output(scope, Endpoint{});
  }
  return shape.rank() == 1 ? Op(scope, "ExpandDims", {*found, -1}) : *found;
}

SparseOutput FeatureTensors::Sparse(const Scope& scope, const feature_columns::Column& column, const std::string& key) {
  if (IsSparse(key)) return SparseFeature(features_, key);
  const auto before = sparse_.find(key);
  if (before != sparse_.end()) return before->second;
  const Output dense = Dense(scope, column, key);
  if (dense.empty()) return {};
  const DType dtype = dense.dtype();
  const Input nothing = dtype == DType::kString ? Input("") : Input(-1).In(scope, dtype);
  const Output there = Op(scope, "NotEqual", {dense, nothing.In(scope, dtype, "no_value")});
  const Output indices = Op(scope, "Where", {there});
  const SparseOutput made{indices, Op(scope, "GatherNd", {dense, indices}),
                          Op(scope, "Shape", {dense}, {{"out_type", DType::kInt64}})};
  if (scope.ok()) sparse_[key] = made;
  return made;
}

IdsAndWeights FeatureTensors::IdsOf(const Scope& scope, const feature_columns::Column& column) {
  const auto before = ids_.find(&column);
  if (before != ids_.end()) return before->second;
  const IdsAndWeights made = column.Ids(scope.SubScope(absl::StrCat(column.scope_name(), "_ids")), *this);
  if (scope.ok()) ids_[&column] = made;
  return made;
}

Output FeatureTensors::NumbersOf(const Scope& scope, const feature_columns::Column& column) {
  const auto before = numbers_.find(&column);
  if (before != numbers_.end()) return before->second;
  const Output made = column.Numbers(scope.SubScope(absl::StrCat(column.scope_name(), "_numbers")), *this);
  if (scope.ok()) numbers_[&column] = made;
  return made;
}

std::shared_ptr<FeatureTensors> MakeFeatureTensors(const OutputMap& features) {
  return std::make_shared<FeatureTensors>(features);
}

namespace feature_columns {

std::string Column::scope_name() const {
  std::string name = name_;
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-' && c != '/') c = '_';
  }
  if (name.empty() || !(absl::ascii_isalnum(static_cast<unsigned char>(name[0])) || name[0] == '.')) name = "." + name;
  return name;
}

void Column::CheckPart(const FeatureColumn& other) { Check(other.status()); }

IdsAndWeights Column::Ids(const Scope& scope, FeatureTensors&) const {
  scope.UpdateStatus(Wrong("is not categorical"));
  return {};
}
Output Column::Values(const ColumnScope& where, FeatureTensors&) const {
  where.scope.UpdateStatus(Wrong("is not dense"));
  return Output(where.scope, Endpoint{});
}
SequenceValues Column::Sequence(const ColumnScope& where, FeatureTensors&) const {
  where.scope.UpdateStatus(Wrong("is not a column of sequences"));
  return {};
}
Output Column::Numbers(const Scope& scope, FeatureTensors&) const {
  scope.UpdateStatus(Wrong("is not numeric"));
  return Output(scope, Endpoint{});
}

Status AddFeature(ParseSpec* spec, const Column& column, const std::string& key, const FeatureSpec& feature) {
  const auto [at, is_new] = spec->emplace(key, feature);
  if (is_new || at->second == feature) return absl::OkStatus();
  return column.Wrong("the feature '", key,
                      "' is needed in another form by another column: with another type, shape or default");
}

Output SequenceLengths(const Scope& scope, const SparseOutput& tensor, int64_t per_step) {
  // One more than the largest index of each example, in steps.
  const auto column = [&](int32_t i) {
    return Op(scope, "StridedSlice",
              {tensor.indices, std::vector<int32_t>{0, i}, std::vector<int32_t>{0, i + 1}, std::vector<int32_t>{1, 1}},
              {{"shrink_axis_mask", 2}, {"begin_mask", 1}, {"end_mask", 1}});
  };
  const Output step = Op(scope, "FloorDiv", {column(1), Input(per_step).In(scope, DType::kInt64)});
  const Output examples =
      Op(scope, "StridedSlice",
         {tensor.dense_shape, std::vector<int32_t>{0}, std::vector<int32_t>{1}, std::vector<int32_t>{1}},
         {{"shrink_axis_mask", 1}});
  const Output last = Op(scope, "UnsortedSegmentMax",
                         {Op(scope, "AddV2", {step, Input(int64_t{1}).In(scope, DType::kInt64)}), column(0), examples});
  // That of an example without values is the smallest of all integers.
  return Op(scope, "Maximum", {last, Input(int64_t{0}).In(scope, DType::kInt64)});
}

Output CheckedBy(const Scope& scope, const Column& column, const std::string& what, const Output& holds,
                 const Output& seen, const Output& x) {
  const Operation check = AddOp(
      scope, "Assert", {holds, InputList{Input(absl::StrCat("feature column ", column.name(), ": ", what)), seen}},
      {{"summarize", int64_t{10}}});
  return Op(check.empty() ? scope : scope.WithControlDependencies({check}), "Identity", {x});
}

}  // namespace feature_columns
}  // namespace millrace
