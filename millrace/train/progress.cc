#include "millrace/train/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// How a line says that its phase is a wait.
constexpr absl::string_view kWaitingFor = "waiting for ";

constexpr absl::Duration kBetweenSteps = absl::Milliseconds(100);

// The launcher may be slow or disappear at any time. Lines are short enough that a pipe takes each one whole or not at
// all.
class ProgressPipe {
 public:
  ProgressPipe() {
    const char* name = std::getenv("MILLRACE_PROGRESS_FD");
    int fd;
    if (name == nullptr || !absl::SimpleAtoi(name, &fd) || fcntl(fd, F_GETFD) < 0) return;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fd_ = fd;
  }

  void Tell(const TrainingProgress& progress) {
    if (fd_ < 0) return;
    const absl::Time now = Clock::Real()->Now();
    MutexLock lock(&mu_);
    const bool same_phase = progress.phase.empty() || progress.phase == phase_;
    if (same_phase && now - told_ < kBetweenSteps) return;
    told_ = now;
    if (!progress.phase.empty()) phase_ = progress.phase;
    const std::string line = FormatProgress(progress) + "\n";
    // SIGPIPE from a launcher that has disappeared must not kill the training; the descriptor is not used any more.
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    if (write(fd_, line.data(), line.size()) < 0 && errno == EPIPE) {
      const timespec none = {};
      sigtimedwait(&pipe, nullptr, &none);
      fd_ = -1;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  Mutex mu_;
  std::atomic<int> fd_{-1};
  absl::Time told_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string phase_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

TrainingProgress TrainingProgress::WaitingFor(absl::string_view what) {
  return {.phase = absl::StrCat(kWaitingFor, what), .waits = true};
}

std::string FormatProgress(const TrainingProgress& progress) {
  std::vector<std::string> words;
  if (progress.step) words.push_back(absl::StrCat("step=", *progress.step));
  if (progress.loss) words.push_back(absl::StrFormat("loss=%.6g", *progress.loss));
  if (!progress.phase.empty())
    words.push_back(absl::StrCat("phase=", absl::StrReplaceAll(progress.phase, {{"\n", " "}, {"\r", " "}})));
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
    const absl::string_view value = rest.substr(0, rest.find(' '));
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(value.size()));
    int64_t step;
    double loss;
    if (key == "step") {
      if (!absl::SimpleAtoi(value, &step)) return InvalidArgument("step is not a number in '", line, "'");
      progress.step = step;
    } else if (key == "loss") {
      if (!absl::SimpleAtod(value, &loss)) return InvalidArgument("loss is not a number in '", line, "'");
      progress.loss = loss;
    }
    any = true;
  }
  if (!any) return InvalidArgument("empty progress line");
  return progress;
}

void ReportProgress(const TrainingProgress& progress) {
  static ProgressPipe* const pipe = new ProgressPipe;
  pipe->Tell(progress);
}

int RestartsByLauncher() {
  const char* text = std::getenv(kRestartsVariable);
  int restarts;
  return text != nullptr && absl::SimpleAtoi(text, &restarts) ? restarts : 0;
}

}  // namespace millrace
