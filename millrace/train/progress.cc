#include "millrace/train/progress.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "millrace/base/clock.h"
#include "millrace/base/launcher_pipe.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// How a line says that its phase is a wait.
constexpr absl::string_view kWaitingFor = "waiting for ";

// A line must fit into a pipe's atomic write.
constexpr size_t kMostError = 1000;

constexpr absl::Duration kBetweenSteps = absl::Milliseconds(100);

// Limits how often the launcher is told.
class ProgressPace {
 public:
  bool IsDue(const TrainingProgress& progress) {
    const absl::Time now = Clock::Real()->Now();
    MutexLock lock(&mu_);
    const bool same_phase = progress.phase.empty() || progress.phase == phase_;
    if (same_phase && !progress.saved && now - told_ < kBetweenSteps) return false;
    told_ = now;
    if (!progress.phase.empty()) phase_ = progress.phase;
    return true;
  }

 private:
  Mutex mu_;
  absl::Time told_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string phase_ ABSL_GUARDED_BY(mu_);
};

std::string OneLine(absl::string_view text) { return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}}); }

}  // namespace

TrainingProgress TrainingProgress::WaitingFor(absl::string_view what) {
  return {.phase = absl::StrCat(kWaitingFor, what), .waits = true};
}

std::string FormatProgress(const TrainingProgress& progress) {
  std::vector<std::string> words;
  if (progress.step) words.push_back(absl::StrCat("step=", *progress.step));
  if (progress.loss) words.push_back(absl::StrFormat("loss=%.6g", *progress.loss));
  if (progress.saved) words.push_back(absl::StrCat("saved=", *progress.saved));
  if (!progress.notice.empty()) words.push_back(absl::StrCat("notice=", progress.notice));
  if (progress.signal != 0) words.push_back(absl::StrCat("signal=", progress.signal));
  if (!progress.checkpoint.empty())
    words.push_back(absl::StrCat("checkpoint=", absl::StrReplaceAll(OneLine(progress.checkpoint), {{" ", "_"}})));
  if (!progress.error.empty()) {
    words.push_back(absl::StrCat("error=", OneLine(progress.error).substr(0, kMostError)));
  } else if (!progress.phase.empty()) {
    words.push_back(absl::StrCat("phase=", OneLine(progress.phase)));
  }
  return absl::StrJoin(words, " ");
}

StatusOr<TrainingProgress> ParseProgress(absl::string_view line) {
  TrainingProgress progress;
  absl::string_view rest = absl::StripAsciiWhitespace(line);
  bool any = false;
  while (!rest.empty()) {
    const size_t equals = rest.find('=');
    if (equals == absl::string_view::npos || equals == 0 ||
        rest.substr(0, equals).find(' ') != absl::string_view::npos) {
      return InvalidArgument("malformed progress line, expected key=value: '", line, "'");
    }
    const absl::string_view key = rest.substr(0, equals);
    rest.remove_prefix(equals + 1);
    if (key == "phase") {
      progress.phase = std::string(rest);
      progress.waits = absl::StartsWith(rest, kWaitingFor);
      return progress;
    }
    if (key == "error") {
      progress.error = std::string(rest);
      return progress;
    }
    const absl::string_view value = rest.substr(0, rest.find(' '));
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(value.size()));
    int64_t step;
    double loss;
    if (key == "step" || key == "saved") {
      if (!absl::SimpleAtoi(value, &step)) return InvalidArgument(key, " is not a number in '", line, "'");
      (key == "step" ? progress.step : progress.saved) = step;
    } else if (key == "loss") {
      if (!absl::SimpleAtod(value, &loss)) return InvalidArgument("loss is not a number in '", line, "'");
      progress.loss = loss;
    } else if (key == "signal") {
      if (!absl::SimpleAtoi(value, &progress.signal)) return InvalidArgument("signal is not a number in '", line, "'");
    } else if (key == "notice") {
      progress.notice = std::string(value);
    } else if (key == "checkpoint") {
      progress.checkpoint = std::string(value);
    }
    any = true;
  }
  if (!any) return InvalidArgument("empty progress line");
  return progress;
}

void ReportProgress(const TrainingProgress& progress) {
  if (!HasLauncher()) return;
  static ProgressPace* const pace = new ProgressPace;
  if (!progress.notice.empty()) return TellLauncher(FormatProgress(progress), LauncherLine::kMatters);
  if (pace->IsDue(progress)) TellLauncher(FormatProgress(progress), LauncherLine::kMayBeDropped);
}

int RestartsByLauncher() {
  const char* text = std::getenv(kRestartsVariable);
  int restarts;
  return text != nullptr && absl::SimpleAtoi(text, &restarts) ? restarts : 0;
}

}  // namespace millrace
