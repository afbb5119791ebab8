#include "millrace/estimator/model_function.h"

#include "absl/strings/str_join.h"

namespace millrace {
namespace {

Output Named(const Scope& scope, const char* what, const OutputMap& tensors, const std::string& name) {
  if (name.empty() && tensors.size() == 1) return tensors.begin()->second;
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, tensor] : tensors) names.push_back(other);
  scope.UpdateStatus(NotFound("there is no ", what, " '", name, "'; the names are: ", absl::StrJoin(names, ", ")));
  return Output(scope, Endpoint{});
}

}  // namespace

Output ModelArgs::feature(const Scope& scope, const std::string& name) const {
  return Named(scope, "feature", features, name);
}
Output ModelArgs::label(const Scope& scope, const std::string& name) const {
  return Named(scope, "label", labels, name);
}

ExportOutput PredictOutput(OutputMap outputs) {
  return {.method = ExportOutput::Method::kPredict, .outputs = std::move(outputs)};
}
ExportOutput ClassificationOutput(const Output& scores, const Output& classes) {
  ExportOutput output{.method = ExportOutput::Method::kClassify};
  if (!scores.empty()) output.outputs["scores"] = scores;
  if (!classes.empty()) output.outputs["classes"] = classes;
  return output;
}
ExportOutput RegressionOutput(const Output& value) {
  return {.method = ExportOutput::Method::kRegress, .outputs = {{"outputs", value}}};
}

double ModelArgs::param(const Scope& scope, const std::string& name, double otherwise) const {
  const auto found = params.find(name);
  if (found == params.end()) return otherwise;
  const Tensor& value = found->second;
  if (value.num_elements() == 1) {
    switch (value.dtype()) {
      case DType::kFloat:
        return value.data<float>()[0];
      case DType::kDouble:
        return value.data<double>()[0];
      case DType::kInt32:
        return value.data<int32_t>()[0];
      case DType::kInt64:
        return static_cast<double>(value.data<int64_t>()[0]);
      default:
        break;
    }
  }
  scope.UpdateStatus(InvalidArgument("the parameter ", name, " is ", value.DebugString(), ", not a number"));
  return otherwise;
}

}  // namespace millrace
