#include "millrace/estimator/serving.h"

#include "millrace/api/op_call.h"

namespace millrace {
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

ServingInputFn ParsingServingInput(ParseSpec features) {
  return [features = std::move(features)](const Scope& scope) -> StatusOr<ServingInput> {
    const Output examples = Op(scope.WithOpName("input_example_tensor"), "Placeholder", {},
                               {{"dtype", DType::kString}, {"shape", PartialShape({-1})}});
    ServingInput input{.features = ParseExamples(scope, examples, features), .receivers = {{"examples", examples}}};
    MR_RETURN_IF_ERROR(scope.status());
    return input;
  };
}

}  // namespace millrace
