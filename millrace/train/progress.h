// What a training program tells its launcher: lines on the file descriptor that MILLRACE_PROGRESS_FD names.
//
//   step=812 loss=0.4321 phase=training
//
// Any program in any language may write them; without the variable nothing is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

struct TrainingProgress {
  std::optional<int64_t> step = std::nullopt;  // global steps finished
  std::optional<double> loss = std::nullopt;
  // In a word or two what the program is doing: "initialising", "waiting for worker/0 to initialise w, b", "training".
  std::string phase = {};
};

// Without a newline. What the phase has of newlines becomes spaces; the phase is last, so it may have spaces.
std::string FormatProgress(const TrainingProgress& progress);
// INVALID_ARGUMENT for a line that is none. Unknown keys are passed over.
StatusOr<TrainingProgress> ParseProgress(absl::string_view line);

// Tells the launcher, if there is one. Steps are told at most ten times a second, another phase at once. Never blocks: what a launcher does not
// read in time is left out. Thread-safe.
void ReportProgress(const TrainingProgress& progress);

}  // namespace millrace
