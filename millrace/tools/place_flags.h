// The flags of `millrace place`, of which `millrace serve --from_scheduler` has a part.
#pragma once

#include <string>
#include <vector>

#include "millrace/tools/job_flags.h"
#include "millrace/tools/notice_flags.h"

namespace millrace {

struct PlaceFlags : JobFlags {
  int rank = -1, size = -1, port = 2222;
  std::string meet, address, log_dir;
  double grace = 5, start_timeout = 60, hang_kill = 0;
  bool explain = false, insecure = false, quiet = false;
  std::vector<std::string> file_roots;
  NoticeFlags notice;

  // Where this process stands, and how the tasks meet.
  void AddSources(CLI::App* command);
  void AddAccess(CLI::App* command);
};

// Runs `program` as the task that this process is, and returns the exit code.
int RunPlaceCommand(const PlaceFlags& flags, const std::vector<std::string>& program);

}  // namespace millrace
