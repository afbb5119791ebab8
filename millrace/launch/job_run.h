// One job as it runs: the loop of the launcher. launcher.h is for its users.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/launch/hang_question.h"
#include "millrace/launch/hang_watch.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/job_socket.h"
#include "millrace/launch/launched_task.h"
#include "millrace/launch/launcher.h"
#include "millrace/launch/supervision.h"
#include "millrace/launch/task_place.h"
#include "millrace/launch/terminal_output.h"

namespace millrace::launch {

// Keepers and questions are this program too, whatever became of its file since.
inline constexpr char kThisProgram[] = "/proc/self/exe";

// One thread. Waits in one place (Poll), for descriptors and the next timer; everything else reacts.
class JobRun {
 public:
  explicit JobRun(const LauncherOptions& options);
  int Run();

 private:
  absl::Time Now() const { return Clock::Real()->Now(); }
  void Say(absl::string_view line) { output_.Error(absl::StrCat("millrace: ", line, "\n")); }

  // Supervision's wishes, and what they lead to.
  void Perform();
  void OpenKeepers();
  // Gives the workers their cores, once it is known what all machines have.
  Status BindWorkers();
  void StartProgram(int task);
  void OnFrame(int task, const Frame& frame);
  void OnOutput(int task, bool error, absl::string_view bytes);
  void OnLine(int task, bool error, absl::string_view line);
  void FlushLines(int task);
  void OnProgress(int task, const TrainingProgress& progress, bool told);
  void LoseKeeper(int task, std::string why);
  void TellStates();

  void OnSignals();
  void Suspend();
  void ReapChildren();
  void KillStrays();

  void AskAboutHang();
  void OnHangAnswer();
  void Draw(bool now);
  void MeasureTerminal();
  JobReport Report() const;

  void Poll(absl::Time until);
  absl::Time NextTimer() const;
  void OnTimer();
  void EndKeepers();
  Status OpenLogs();
  void MergeProfiles();

  const LauncherOptions& options_;
  const absl::Time began_;
  Supervision supervision_;
  std::vector<LaunchedTask> tasks_;
  TerminalOutput output_;
  HangWatch hang_;
  std::optional<HangQuestion> question_;
  HangAnswer hang_answer_;
  StatusOr<JobSocket> socket_ = Unavailable("not opened");
  Fd signals_;
  bool adopts_ = false;  // orphans below it are its own
  std::vector<int> keepers_to_open_;
  ClusterAddresses cluster_;
  int rows_ = 24, columns_ = 80;
  absl::Time next_ping_ = absl::InfiniteFuture(), next_draw_ = absl::InfiniteFuture(), next_output_ = absl::InfinitePast();
  bool finished_ = false;
  int code_ = 1;
  std::string verdict_;
};

}  // namespace millrace::launch
