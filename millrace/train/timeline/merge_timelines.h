// The files through which the workers of a training make one timeline: each worker's ProfilerHook writes its traced
// steps as parts into one directory, and MergeTimelines joins them.
#pragma once

#include <string>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/timeline.pb.h"

namespace millrace {

inline constexpr char kTimelinePartSuffix[] = ".timeline_part";

// Writes DIRECTORY/worker_0.step_100.timeline_part, a serialized TimelinePart, and creates the directory if needed.
Status WriteTimelinePart(const TimelinePart& part, const std::string& directory,
                         FileSystem* files = FileSystem::Posix());

// Joins the parts in `directory` into one Chrome trace, DIRECTORY/timeline.json, and returns its path. NOT_FOUND if
// there are no parts. A part that cannot be read is skipped with a warning in the log; if no part can be read, the
// first error is returned.
StatusOr<std::string> MergeTimelines(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
