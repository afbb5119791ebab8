#include "millrace/train/notice_report.h"

#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"
#include "millrace/train/progress.h"

namespace millrace {

Status StoppedByNotice(const Notice& notice) { return Cancelled("the training was stopped by ", notice.SignalName()); }

void ReportStop(const Notice& notice, std::optional<int64_t> step, const StatusOr<std::string>& checkpoint) {
  TrainingProgress told{.step = step, .notice = "ready"};
  const std::string where =
      absl::StrCat("stopped by ", notice.SignalName(), step ? absl::StrCat(" at step ", *step) : "");
  if (!checkpoint.ok()) {
    told.notice = "failed";
    told.error = std::string(checkpoint.status().message());
    MR_LOG(Error, where, "; the checkpoint is not whole: ", told.error);
  } else if (!checkpoint->empty()) {
    told.notice = "saved";
    told.checkpoint = *checkpoint;
    MR_LOG(Info, where, "; ", told.checkpoint, " is whole");
  } else {
    MR_LOG(Info, where);
  }
  ReportProgress(told);
}

}  // namespace millrace
