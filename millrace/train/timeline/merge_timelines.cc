#include "millrace/train/timeline/merge_timelines.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "millrace/base/log.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/train/timeline/timeline.h"

namespace millrace {

Status WriteTimelinePart(const TimelinePart& part, const std::string& directory, FileSystem* files) {
  MR_RETURN_IF_ERROR(files->MakeDirectories(directory));
  // A name that is not a task's still has to become one file name.
  const std::string task =
      absl::StrReplaceAll(part.task().empty() ? "program" : ShortTaskName(part.task()), {{"/", "_"}});
  return ReplaceFile(files, JoinPath(directory, absl::StrCat(task, ".step_", part.global_step(), kTimelinePartSuffix)),
                     part.SerializeAsString());
}

StatusOr<std::string> MergeTimelines(const std::string& directory, FileSystem* files) {
  StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok()) return names.status();
  Timeline timeline;
  Status unreadable;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kTimelinePartSuffix)) continue;
    const std::string path = JoinPath(directory, name);
    const StatusOr<std::string> bytes = ReadWholeFile(files, path);
    TimelinePart part;
    const Status status = !bytes.ok()                    ? bytes.status()
                          : part.ParseFromString(*bytes) ? absl::OkStatus()
                                                         : InvalidArgument(path, " is not a part of a timeline");
    if (status.ok()) {
      timeline.Add(std::move(part));
    } else {
      MR_LOG(Warning, "the timeline lacks a part that cannot be read: ", status.message());
      if (unreadable.ok()) unreadable = status;
    }
  }
  if (timeline.empty() && !unreadable.ok()) return unreadable;
  if (timeline.empty()) return NotFound("there are no parts of a timeline (*", kTimelinePartSuffix, ") in ", directory);
  const std::string path = JoinPath(directory, "timeline.json");
  MR_RETURN_IF_ERROR(ReplaceFile(files, path, timeline.ToJson()));
  return path;
}

}  // namespace millrace
