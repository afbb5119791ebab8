// --notice_signal and --requeue, common to the commands that run a whole job.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "millrace/base/notice.h"
#include "millrace/launch/launcher.h"
#include "millrace/launch/requeue.h"

namespace millrace {

struct NoticeFlags {
  std::string signal = "TERM";
  bool requeue = false;

  void Add(CLI::App* command) {
    command
        ->add_option("--notice_signal", signal,
                     "A signal that, besides SIGTERM, is a notice of preemption: to the launcher or to any program, it "
                     "ends the step in hand, has the chief save, and ends the job. TERM, USR1, USR2 or HUP")
        ->capture_default_str();
    command->add_flag("--requeue", requeue,
                      "After a notice, asks Slurm to start the job again: scontrol requeue $SLURM_JOB_ID");
  }
  // INVALID_ARGUMENT for another signal, FAILED_PRECONDITION if no scheduler can start the job again.
  Status Fill(launch::LauncherOptions* options) const {
    options->notice_signal = NoticeSignalNumber(signal);
    if (options->notice_signal == 0)
      return InvalidArgument("--notice_signal is '", signal, "'; use TERM, USR1, USR2 or HUP");
    options->requeue = requeue;
    return requeue ? WithPrefix("--requeue: ", launch::CanRequeue()) : absl::OkStatus();
  }
};

}  // namespace millrace
