// Which guard a job's meeting has, and where it is.
#pragma once

#include <memory>
#include <string>

#include "millrace/launch/meeting/meeting_point.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {

// By the environment: the job's secret if there is one, otherwise munge. FAILED_PRECONDITION says what to do if there
// is neither.
StatusOr<std::unique_ptr<MeetingGuard>> ChooseGuard(const Environment& environment, absl::string_view label);

// Where the processes that `standing` is one of meet. `meet` is the flag: "HOST", "HOST:PORT" or empty.
StatusOr<MeetingPoint> ChooseMeetingPoint(const Environment& environment, const Standing& standing,
                                          const std::string& meet);

}  // namespace millrace::launch
