// One look at a job or a cluster: what its launcher and its tasks said.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/cluster/watch/bottleneck.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/launch/job_report.h"

namespace millrace::dashboard {

struct Observation {
  // "job 4711" or "grpc://localhost:2222".
  std::string title = {};
  double seconds = 0;  // since the launch, or since the dashboard began to look
  double began = 0;    // when that was, as Unix time
  // What the launcher reported; nullopt for a cluster without a launcher.
  std::optional<launch::JobReport> job = {};
  // The tasks' own answers; empty if none has a server. The names are as in a cluster spec ("/job:ps/...").
  std::vector<TaskView> tasks = {};
  HangReport hang = {};
  std::optional<Bottleneck> bottleneck = {};  // from the second look on
  bool ended = false;                         // the job is over
  std::string lost = {};                      // why nothing newer is known; empty while there is
};

}  // namespace millrace::dashboard
