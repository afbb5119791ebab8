// The steps of a whole cluster on one clock, for chrome://tracing and Perfetto.
#pragma once

#include <string>

#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// Where launched programs find what to profile: "100" or "100:105" (of global steps, the last not included) and the folder for it.
inline constexpr char kProfileStepsVariable[] = "MILLRACE_PROFILE_STEPS";
inline constexpr char kProfileDirVariable[] = "MILLRACE_PROFILE_DIR";

// Joins what the workers' ProfilerHooks wrote into `directory` to one Chrome trace, DIRECTORY/timeline.json, and returns its path. NOT_FOUND when there is
// nothing.
StatusOr<std::string> MergeTimelines(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
