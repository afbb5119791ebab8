// The steps of a whole cluster on one clock, for chrome://tracing and Perfetto.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/timeline.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

// Where launched programs find what to profile: "100" or "100:105" (of global steps, the last not included) and the folder for it.
inline constexpr char kProfileStepsVariable[] = "MILLRACE_PROFILE_STEPS";
inline constexpr char kProfileDirVariable[] = "MILLRACE_PROFILE_DIR";

// Builds one Chrome trace of steps that were run with RunOptions::trace:
//
//   session.Run({.trace = true}, feeds, fetches, targets, &results, &metadata);
//   Timeline timeline;
//   timeline.Add(metadata.step_stats());
//   ReplaceFile(FileSystem::Posix(), "timeline.json", timeline.ToJson());
//
// Each task is a process of the trace, with a lane for each of its executor's threads, for ops that wait, for tensors that it sends and receives and for
// the parts of steps that it has others run; arrows go from the sending of a tensor to its arrival. The tasks' clocks are brought together by what is
// known of them: measured offsets (TimelinePart::clocks), and that a tensor was sent after it was asked for and before it arrived, and that a part ran
// while its master waited for it. The trace's "otherData" says by which clock its times are, and how far each task's clock was off and may still be.
//
// One thread. Whatever the messages hold, the result is a trace.
class Timeline {
 public:
  void Add(TimelinePart part) { parts_.push_back(std::move(part)); }
  // One step, of which nothing but its statistics is known.
  void Add(const pb::StepStats& stats) { *parts_.emplace_back().mutable_step_stats() = stats; }
  bool empty() const { return parts_.empty(); }

  // Times start at 0 with the first event; otherData's "epoch_nanos" is when that was.
  std::string ToJson() const;

 private:
  std::vector<TimelinePart> parts_;
};

// What each worker's ProfilerHook leaves for MergeTimelines: DIRECTORY/worker_0.step_100.timeline_part, a TimelinePart.
inline constexpr char kTimelinePartSuffix[] = ".timeline_part";
Status WriteTimelinePart(const TimelinePart& part, const std::string& directory, FileSystem* files = FileSystem::Posix());

// Joins what the workers' ProfilerHooks wrote into `directory` to one Chrome trace, DIRECTORY/timeline.json, and returns its path. NOT_FOUND when there is
// nothing. A part that cannot be read is left out with a warning in the log; the first such error when there is no other part.
StatusOr<std::string> MergeTimelines(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
