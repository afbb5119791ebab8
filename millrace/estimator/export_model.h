// Estimator::ExportSavedModel. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/estimator/model_graph.h"
#include "millrace/estimator/serving.h"
#include "millrace/saved_model/signature.h"

namespace millrace::estimator_internal {

// The signatures of a model. Those that need a single string to feed (classification, regression) are left out if
// there is another input; why is logged. INVALID_ARGUMENT if none is left, or if there are several outputs and none is
// the default.
StatusOr<Signatures> SignaturesOf(const EstimatorSpec& spec, const ServingInput& input);

// The exports of a folder, oldest first: the folders whose names are numbers.
StatusOr<std::vector<std::string>> ExportsIn(const std::string& base);

// A path for a new export: the seconds since 1970, or more if there are exports of later times.
StatusOr<std::string> NewExportPath(const std::string& base, absl::Time now);

// Exports `checkpoint` to a new folder of `base`, whose path it returns. `model.mode` is kPredict.
StatusOr<std::string> ExportModel(const ModelGraphOptions& model, const std::string& base,
                                  const std::string& checkpoint, const ServingInputFn& serving,
                                  const ExportOptions& options);

}  // namespace millrace::estimator_internal
