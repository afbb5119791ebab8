// The steps of a whole cluster on one clock, as a trace for chrome://tracing and Perfetto.
#pragma once

#include <string>
#include <vector>

#include "millrace/proto/timeline.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

// Builds one Chrome trace of steps that were run with RunOptions::trace:
//
//   session.Run({.trace = true}, feeds, fetches, targets, &results, &metadata);
//   Timeline timeline;
//   timeline.Add(metadata.step_stats());
//   ReplaceFile(FileSystem::Posix(), "timeline.json", timeline.ToJson());
//
// Each task is a process of the trace, with rows for its executor threads, for asynchronous ops, for tensors that it
// sends and receives, and for the parts of steps that it runs on other tasks. Arrows connect the send of a tensor with
// its arrival. The tasks' clocks are aligned by measured offsets (TimelinePart::clocks) and by causality: a tensor was
// sent after it was requested and before it arrived, and a part ran while its master waited for it. The trace's
// "otherData" names the reference clock and gives each task's clock offset with its error.
//
// Not thread-safe. Malformed messages still give a valid trace.
class Timeline {
 public:
  void Add(TimelinePart part) { parts_.push_back(std::move(part)); }
  // Adds one step of which only the statistics are known.
  void Add(const pb::StepStats& stats) { *parts_.emplace_back().mutable_step_stats() = stats; }
  bool empty() const { return parts_.empty(); }

  // Times start at 0 with the first event; "epoch_nanos" in otherData is the time of that event.
  std::string ToJson() const;

 private:
  std::vector<TimelinePart> parts_;
};

}  // namespace millrace
