// Step and loss of a program that says them only in its output.
#pragma once

#include "absl/strings/string_view.h"
#include "millrace/train/progress.h"

namespace millrace::launch {

// Finds "step 812", "Step: 812", "global step: 812", "global_step=812", "step #812/6000" and "loss 0.43", "loss = 0.43", "train_loss: 4.3e-1",
// "Loss: nan" in a line, case and the signs between them aside. A global step goes before others, then the first of each counts. Empty for a line with neither.
TrainingProgress ReadTrainingText(absl::string_view line);

}  // namespace millrace::launch
