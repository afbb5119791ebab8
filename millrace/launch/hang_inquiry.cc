#include "millrace/launch/hang_inquiry.h"

#include <signal.h>

#include <utility>

#include "millrace/cluster/cluster_spec.h"
#include "millrace/launch/exit_status.h"

namespace millrace::launch {

void HangInquiry::Ask() {
  std::vector<std::string> tasks;
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    const TaskRecord& record = job_->supervision.tasks()[i];
    if (record.state == RunState::kRunning && job_->cluster.contains(record.name.job))
      tasks.push_back(absl::StrCat(TaskId{record.name.job, record.name.index}.name(), "=", job_->tasks[i].address));
  }
  job_->hang.OnAsked();
  StatusOr<HangQuestion> question = HangQuestion::Ask(kThisProgram, job_->hang.wait_limit(), tasks,
                                                      job_->client.has_value() ? &*job_->client : nullptr);
  if (question.ok()) {
    question_ = *std::move(question);
  } else {
    job_->hang.OnAnswer(job_->Now(), "");
  }
}

void HangInquiry::OnReadable() {
  if (question_->Read()) OnAnswer();
}

void HangInquiry::OnReaped(pid_t pid) {
  if (question_ && question_->pid() == pid) question_->OnReaped();
}

void HangInquiry::Kill() {
  if (pid() > 0) kill(pid(), SIGKILL);
  question_.reset();
}

std::vector<std::string> HangInquiry::waits() const {
  return job_->hang.cause().empty() ? std::vector<std::string>() : answer_.waits;
}

void HangInquiry::OnAnswer() {
  answer_ = question_->answer();
  question_.reset();
  const absl::Time now = job_->Now();
  const std::string quiet = ShortAge(now - job_->hang.since());
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    // The launcher knows about suspended tasks, the other tasks do not.
    const TaskRecord& record = job_->supervision.tasks()[i];
    if (record.suspended_by == 0 || record.state != RunState::kRunning) continue;
    if (!answer_.cause.empty()) answer_.waits.insert(answer_.waits.begin(), answer_.cause);
    answer_.cause = absl::StrCat(record.name.ToString(), " is suspended by ", SignalName(record.suspended_by),
                                 " since ", ShortAge(now - record.suspended_since));
    break;
  }
  // Falls back to the phases that the programs reported, if no server has a wait: before the first step there may be no
  // server.
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    const Training& training = job_->tasks[i].training;
    if (job_->supervision.tasks()[i].state != RunState::kRunning || !training.waits()) continue;
    if (now - training.phase_since() < job_->hang.wait_limit()) continue;
    answer_.waits.push_back(absl::StrCat(job_->tasks[i].name, " has been ", training.phase(), " for ",
                                         ShortAge(now - training.phase_since())));
    if (answer_.cause.empty()) answer_.cause = answer_.waits.back();
  }
  if (answer_.cause.empty()) {
    const LaunchedTask* last = nullptr;
    for (const LaunchedTask& task : job_->tasks) {
      if (task.training.last_step() != absl::InfinitePast() &&
          (last == nullptr || task.training.last_step() > last->training.last_step()))
        last = &task;
    }
    // Steps that have stopped are reported even if nobody knows why.
    if (last != nullptr) {
      answer_.cause = absl::StrCat("the last step was ", *last->training.step(), " of ", last->name,
                                   ", and no task reports what it waits for");
    }
  }
  if (!job_->hang.OnAnswer(now, answer_.cause)) return;
  job_->Say(absl::StrCat("no step for ", quiet, ": ", answer_.cause));
  job_->Note("hang", "", absl::StrCat("no step for ", quiet, ": ", answer_.cause));
  for (const std::string& wait : answer_.waits) {
    if (wait != answer_.cause) job_->Say(absl::StrCat("  ", wait));
  }
}

}  // namespace millrace::launch
