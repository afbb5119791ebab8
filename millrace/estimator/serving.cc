#include "millrace/estimator/serving.h"

#include "millrace/api/op_call.h"

namespace millrace {
namespace {

Status CheckFeature(const std::string& name, const ExampleFeature& feature) {
  if (feature.dtype != DType::kFloat && feature.dtype != DType::kInt64 && feature.dtype != DType::kString) {
    return InvalidArgument("the feature ", name, " is ", feature.dtype,
                           "; Examples have values of float, int64 and string");
  }
  if (!feature.default_value) return absl::OkStatus();
  const Tensor& value = *feature.default_value;
  if (value.dtype() == feature.dtype && (value.shape() == feature.shape || value.rank() == 0)) return absl::OkStatus();
  return InvalidArgument("the default of the feature ", name, " is ", value.dtype(), value.shape().ToString(),
                         ", but the feature is ", feature.dtype, feature.shape.ToString());
}

// What ParseExample takes for "no default".
Tensor DefaultOf(const ExampleFeature& feature) {
  return feature.default_value ? *feature.default_value : Tensor(feature.dtype, Shape({0}));
}

}  // namespace

ServingInputFn RawServingInput(std::map<std::string, InputSpec> features) {
  return [features = std::move(features)](const Scope& scope) -> StatusOr<ServingInput> {
    ServingInput input;
    for (const auto& [name, spec] : features) {
      const Output fed = Op(scope.WithOpName(name), "Placeholder", {}, {{"dtype", spec.dtype}, {"shape", spec.shape}});
      input.features[name] = input.receivers[name] = fed;
    }
    MR_RETURN_IF_ERROR(scope.status());
    return input;
  };
}

OutputMap ParseExamples(const Scope& scope, const Input& serialized, const ExampleFeatures& features) {
  const Scope s = scope.ForComposite("ParseExample");
  OutputMap parsed;
  if (features.empty()) s.UpdateStatus(InvalidArgument(s.prefix(), ": there are no features to parse"));
  std::vector<std::string> names;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  std::vector<Input> defaults;
  for (const auto& [name, feature] : features) {
    s.UpdateStatus(CheckFeature(name, feature));
    if (!s.ok()) return parsed;
    names.push_back(name);
    types.push_back(feature.dtype);
    shapes.emplace_back(feature.shape);
    Tensor value = DefaultOf(feature);
    // A number stands for each value of the feature.
    Output given = Input(value).In(s.WithOpName("default"));
    if (feature.default_value && value.rank() == 0 && feature.shape.rank() > 0) {
      const std::vector<int64_t> dims(feature.shape.dims().begin(), feature.shape.dims().end());
      given = Op(s, "Fill", {dims, given});
    }
    defaults.emplace_back(given);
  }
  const std::vector<std::string> none;
  const Operation parse = AddOp(s.WithOpName("ParseExampleV2"), "ParseExampleV2",
                                {serialized, none, none, names, none, InputList(defaults)},
                                {{"Tdense", types},
                                 {"num_sparse", 0},
                                 {"sparse_types", std::vector<DType>()},
                                 {"ragged_value_types", std::vector<DType>()},
                                 {"ragged_split_types", std::vector<DType>()},
                                 {"dense_shapes", shapes}});
  for (size_t i = 0; i < names.size(); ++i) parsed[names[i]] = parse.output(static_cast<int>(i));
  return parsed;
}

ServingInputFn ParsingServingInput(ExampleFeatures features) {
  return [features = std::move(features)](const Scope& scope) -> StatusOr<ServingInput> {
    const Output examples = Op(scope.WithOpName("input_example_tensor"), "Placeholder", {},
                               {{"dtype", DType::kString}, {"shape", PartialShape({-1})}});
    ServingInput input{.features = ParseExamples(scope, examples, features), .receivers = {{"examples", examples}}};
    MR_RETURN_IF_ERROR(scope.status());
    return input;
  };
}

}  // namespace millrace
