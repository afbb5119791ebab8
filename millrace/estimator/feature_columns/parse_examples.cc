#include "millrace/estimator/feature_columns/parse_examples.h"

#include "absl/strings/str_cat.h"
#include "millrace/estimator/feature_columns/column.h"

namespace millrace {
namespace {

bool SameTensor(const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || (a->dtype() == b->dtype() && a->shape() == b->shape() && a->DebugString() == b->DebugString());
}

bool CanBeParsed(DType dtype) { return dtype == DType::kFloat || dtype == DType::kInt64 || dtype == DType::kString; }

bool HasRightDefault(const FeatureSpec& feature) {
  if (!feature.default_value) return true;
  const Tensor& value = *feature.default_value;
  return value.dtype() == feature.dtype && (value.rank() == 0 || value.shape() == feature.shape);
}

// What ParseExampleV2 takes: a tensor of the feature's shape, or an empty one for "no default".
Input DefaultOf(const Scope& s, const FeatureSpec& feature) {
  if (!feature.default_value) return Tensor(feature.dtype, Shape({0}));
  if (feature.default_value->rank() == feature.shape.rank()) return *feature.default_value;
  const std::vector<int64_t> dims(feature.shape.dims().begin(), feature.shape.dims().end());
  return Op(s, "Fill", {dims, *feature.default_value});
}

}  // namespace

bool operator==(const FeatureSpec& a, const FeatureSpec& b) {
  return a.dtype == b.dtype && a.variable_length == b.variable_length && a.shape == b.shape &&
         SameTensor(a.default_value, b.default_value);
}

FeatureSpec FixedLenFeature(DType dtype, Shape shape, std::optional<Tensor> default_value) {
  return {.dtype = dtype, .shape = std::move(shape), .default_value = std::move(default_value)};
}
FeatureSpec VarLenFeature(DType dtype) { return {.dtype = dtype, .variable_length = true}; }

StatusOr<ParseSpec> MakeParseExampleSpec(const std::vector<FeatureColumn>& columns) {
  ParseSpec spec;
  for (const FeatureColumn& column : columns) {
    MR_RETURN_IF_ERROR(column.status());
    MR_RETURN_IF_ERROR(column.column().AddFeatures(&spec));
  }
  return spec;
}

OutputMap ParseExamples(const Scope& scope, const Input& serialized, const ParseSpec& spec) {
  const Scope s = scope.ForComposite("parse_examples");
  OutputMap features;
  std::vector<std::string> sparse, dense;
  std::vector<DType> sparse_types;
  std::vector<Input> defaults;
  std::vector<PartialShape> shapes;
  for (const auto& [name, feature] : spec) {
    if (!CanBeParsed(feature.dtype)) {
      s.UpdateStatus(InvalidArgument("the feature '", name, "' has type ", feature.dtype,
                                     "; examples have float, int64 and string"));
      return features;
    }
    if (feature.variable_length) {
      sparse.push_back(name);
      sparse_types.push_back(feature.dtype);
      continue;
    }
    if (!HasRightDefault(feature)) {
      s.UpdateStatus(InvalidArgument("the feature '", name, "' is ", feature.dtype, feature.shape.ToString(),
                                     ", and its default is ", feature.default_value->DebugString()));
      return features;
    }
    dense.push_back(name);
    defaults.push_back(DefaultOf(s, feature));
    shapes.emplace_back(feature.shape);
  }
  const auto count = static_cast<int64_t>(sparse.size());
  const Tensor no_names(DType::kString, Shape({0}));
  const auto names = [&](const std::vector<std::string>& list) { return list.empty() ? Input(no_names) : Input(list); };
  const Operation parsed =
      AddOp(s, "ParseExampleV2", {serialized, no_names, names(sparse), names(dense), no_names, InputList(defaults)},
            {{"num_sparse", count},
             {"sparse_types", sparse_types},
             {"ragged_value_types", std::vector<DType>()},
             {"ragged_split_types", std::vector<DType>()},
             {"dense_shapes", shapes}});
  if (parsed.empty()) return features;
  const auto n = static_cast<int>(count);
  for (int i = 0; i < n; ++i) {
    SetSparseFeature(&features, sparse[static_cast<size_t>(i)],
                     {parsed.output(i), parsed.output(n + i), parsed.output(2 * n + i)});
  }
  for (size_t i = 0; i < dense.size(); ++i) features[dense[i]] = parsed.output(3 * n + static_cast<int>(i));
  return features;
}

void SetSparseFeature(OutputMap* features, const std::string& name, const SparseOutput& tensor) {
  (*features)[name + "/indices"] = tensor.indices;
  (*features)[name + "/values"] = tensor.values;
  (*features)[name + "/dense_shape"] = tensor.dense_shape;
}

SparseOutput SparseFeature(const OutputMap& features, const std::string& name) {
  const auto part = [&](const char* suffix) {
    const auto found = features.find(name + suffix);
    return found == features.end() ? Output() : found->second;
  };
  return {part("/indices"), part("/values"), part("/dense_shape")};
}

}  // namespace millrace
