// What clients of an exported model send, and how it becomes the features of the model function: TensorFlow's serving
// input receivers.
//
//   ServingInputFn raw = RawServingInput({{"x", {DType::kFloat, {-1, 784}}}});
//   ServingInputFn examples = ParsingServingInput({{"x", {.shape = {784}}}});
#pragma once

#include <functional>
#include <map>
#include <string>

#include "millrace/base/clock.h"
#include "millrace/estimator/feature_columns/parse_examples.h"
#include "millrace/estimator/model_function.h"

namespace millrace {

struct ServingInput {
  // What the model function gets.
  OutputMap features = {};
  // What clients feed, by the names of the signatures' inputs.
  OutputMap receivers = {};
  // Other tensors that can be fed instead of `receivers`. The signature of output OUT and alternative ALT is "ALT:OUT".
  std::map<std::string, OutputMap> alternatives = {};
};
// Builds placeholders and what turns them into features. Errors are those of the scope, or returned.
using ServingInputFn = std::function<StatusOr<ServingInput>(const Scope& scope)>;

// Clients feed the features themselves. Shapes include the dimension of the batch, which is -1 for any number of
// examples.
ServingInputFn RawServingInput(std::map<std::string, InputSpec> features);

// Clients feed serialized Examples, by the name "examples"; MakeParseExampleSpec gives the features of columns.
ServingInputFn ParsingServingInput(ParseSpec features);

struct ExportOptions {
  // A checkpoint's prefix; the newest of model_dir if empty.
  std::string checkpoint_path = {};
  // Files that are copied to assets.extra/NAME of the export, for those who load it.
  std::map<std::string, std::string> assets_extra = {};
  // Removes attrs that have their default values, so that older versions of TensorFlow can load the model.
  bool strip_default_attrs = true;
  // For the names of exports. If it is set back, they still grow.
  WallClock* wall_clock = WallClock::Real();
};

}  // namespace millrace
