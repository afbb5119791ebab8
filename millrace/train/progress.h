// Progress that a training program reports to its launcher, as lines on the file descriptor in MILLRACE_PROGRESS_FD.
//
//   step=812 loss=0.4321 phase=training
//   saved=800
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
  std::optional<int64_t> saved = std::nullopt;  // the step of a checkpoint that is now on disk, whole
  // What the program is doing: "initialising", "waiting for worker/0 to initialise w, b", "training".
  std::string phase = {};
  // Whether the phase is a wait, which the launcher reports as a hang when it lasts. In a line, "phase=waiting for
  // ...".
  bool waits = false;

  // What the program says about a notice (base/notice.h), which is never dropped:
  //   given     somebody else than the launcher has sent it `signal`
  //   stopping  the step in hand is the last
  //   follows   its steps end with the chief's
  //   ready     it makes no more steps
  //   saved     likewise, and `checkpoint` is whole
  //   failed    likewise, and the checkpoint is not whole because of `error`
  std::string notice = {};
  int signal = 0;
  std::string checkpoint = {};  // without its directory
  std::string error = {};

  static TrainingProgress WaitingFor(absl::string_view what);
};

// One line, without the newline at its end. The phase, or the error, comes last because it may contain spaces; its
// newlines become spaces.
std::string FormatProgress(const TrainingProgress& progress);
// INVALID_ARGUMENT for a malformed line. Unknown keys are ignored.
StatusOr<TrainingProgress> ParseProgress(absl::string_view line);

// Reports to the launcher, if there is one. Steps are reported at most ten times a second, a change of phase
// and a checkpoint immediately. Never blocks: lines that the launcher does not read in time are dropped. Thread-safe.
void ReportProgress(const TrainingProgress& progress);

// How often the launcher has started this task again within its job; 0 without a launcher.
inline constexpr char kRestartsVariable[] = "MILLRACE_RESTARTS";
int RestartsByLauncher();

}  // namespace millrace
