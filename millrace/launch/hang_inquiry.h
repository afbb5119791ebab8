// Asks the tasks of a job without progress what they wait for, and reports the answer.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/launch/hang_question.h"
#include "millrace/launch/job_state.h"

namespace millrace::launch {

// The job's HangWatch decides when to ask. One query at a time. Single-threaded; `job` must outlive it.
class HangInquiry {
 public:
  explicit HangInquiry(JobState* job) : job_(job) {}

  // Asks the running tasks.
  void Ask();
  // The descriptor of the query in flight, to poll for reading; -1 if there is none.
  int fd() const { return question_ ? question_->fd() : -1; }
  void OnReadable();
  // The process that asks; 0 if there is none.
  pid_t pid() const { return question_ ? question_->pid() : 0; }
  void OnReaped(pid_t pid);
  // Ends the query in flight, if any.
  void Kill();

  // Call it after a step: the earlier answer is obsolete.
  void Forget() { answer_ = {}; }
  // What the tasks wait for; empty unless the job hangs.
  std::vector<std::string> waits() const;

 private:
  void OnAnswer();

  JobState* const job_;
  std::optional<HangQuestion> question_;
  HangAnswer answer_;
};

}  // namespace millrace::launch
