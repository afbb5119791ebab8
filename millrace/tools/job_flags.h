// --ps, --workers, --job and the other flags that say which tasks a job has and what they run.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "millrace/launch/job_spec.h"

namespace millrace {

struct JobFlags {
  int ps = 0, workers = 0;
  std::vector<std::string> jobs, side_jobs, restarts, programs, serves, services;
  bool host_flags = false;

  void Add(CLI::App* command);
  // --ps, --workers, --job and --side_job only.
  void AddGroups(CLI::App* command);
  // The groups of the job with their programs and policies. `millrace` is the path of this command. INVALID_ARGUMENT
  // names the flag.
  Status FillJob(const std::string& millrace, launch::JobSpec* job) const;
  // The groups alone; there may be none.
  StatusOr<std::vector<launch::TaskGroup>> Groups() const;
  // What FillJob adds to the groups.
  Status FillPrograms(const std::string& millrace, launch::JobSpec* job) const;
};

}  // namespace millrace
