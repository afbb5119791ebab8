// Examples as records: which features the columns of a model need, and their tensors from serialized tf.Examples.
//
//   MR_ASSIGN_OR_RETURN(ParseSpec spec, MakeParseExampleSpec(columns));
//   spec["label"] = FixedLenFeature(DType::kInt64);
//   OutputMap features = ParseExamples(scope, serialized, spec);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/api/sparse_output.h"
#include "millrace/estimator/feature_columns/feature_column.h"
#include "millrace/estimator/output_map.h"

namespace millrace {

// How one feature is parsed.
struct FeatureSpec {
  DType dtype = DType::kFloat;  // float, int64 or string
  // Of any number of values, which become a sparse tensor; otherwise of `shape`.
  bool variable_length = false;
  Shape shape = Shape();
  // For examples without the feature: a tensor of `shape`, or a scalar for all its elements. Without one they are an
  // error.
  std::optional<Tensor> default_value = std::nullopt;

  friend bool operator==(const FeatureSpec& a, const FeatureSpec& b);
};
using ParseSpec = std::map<std::string, FeatureSpec>;

FeatureSpec FixedLenFeature(DType dtype, Shape shape = Shape(), std::optional<Tensor> default_value = std::nullopt);
FeatureSpec VarLenFeature(DType dtype);

// The features that the columns need. INVALID_ARGUMENT if two columns need the same feature in different forms.
StatusOr<ParseSpec> MakeParseExampleSpec(const std::vector<FeatureColumn>& columns);

// The features of `serialized`, strings [batch]. A step fails with an error that names the feature that an example
// lacks, or has in another type.
OutputMap ParseExamples(const Scope& scope, const Input& serialized, const ParseSpec& spec);

// A sparse feature among others: three tensors, "NAME/indices", "NAME/values" and "NAME/dense_shape".
void SetSparseFeature(OutputMap* features, const std::string& name, const SparseOutput& tensor);
// Empty if there is none of that name.
SparseOutput SparseFeature(const OutputMap& features, const std::string& name);

}  // namespace millrace
