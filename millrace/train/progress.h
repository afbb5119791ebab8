// Progress that a training program reports to its launcher, as lines on the file descriptor in MILLRACE_PROGRESS_FD.
//
//   step=812 loss=0.4321 phase=training
//
// Any program in any language may write such lines. If the variable is not set, nothing is written.
// In the other direction, MILLRACE_RESTARTS tells a program how often the launcher has started it again.
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
  // What the program is doing: "initialising", "waiting for worker/0 to initialise w, b", "training".
  std::string phase = {};
  // Whether the phase is a wait, which the launcher reports as a hang when it lasts. In a line, "phase=waiting for
  // ...".
  bool waits = false;

  static TrainingProgress WaitingFor(absl::string_view what);
};

// One line, without the newline at its end. The phase comes last because it may contain spaces; its newlines become
// spaces.
std::string FormatProgress(const TrainingProgress& progress);
// INVALID_ARGUMENT for a malformed line. Unknown keys are ignored.
StatusOr<TrainingProgress> ParseProgress(absl::string_view line);

// Reports to the launcher, if there is one. Steps are reported at most ten times a second, a change of phase
// immediately. Never blocks: lines that the launcher does not read in time are dropped. Thread-safe.
void ReportProgress(const TrainingProgress& progress);

// How often the launcher has started this task again within its job; 0 without a launcher.
inline constexpr char kRestartsVariable[] = "MILLRACE_RESTARTS";
int RestartsByLauncher();

}  // namespace millrace
