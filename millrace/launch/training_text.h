// Extracts step and loss from the output of a program that does not report its progress otherwise.
#pragma once

#include "absl/strings/string_view.h"
#include "millrace/train/progress.h"

namespace millrace::launch {

// Finds "step 812", "Step: 812", "global step: 812", "global_step=812", "step #812/6000" and "loss 0.43", "loss =
// 0.43", "train_loss: 4.3e-1", "Loss: nan" in a line, regardless of case and punctuation. A global step takes
// precedence over other steps; otherwise the first of each counts. Empty for a line with neither.
TrainingProgress ReadTrainingText(absl::string_view line);

}  // namespace millrace::launch
