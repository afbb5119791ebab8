// What a training tells about its end by a notice (base/notice.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/base/notice.h"
#include "millrace/base/status.h"

namespace millrace {

// "the training was stopped by SIGTERM"
Status StoppedByNotice(const Notice& notice);

// Tells the launcher and the log that the training makes no more steps: `stopped by SIGTERM at step 812; model.ckpt-812
// is whole`. `checkpoint` is the name of the one that has been saved, without its directory; empty if this task saves
// none; or why it is not whole.
void ReportStop(const Notice& notice, std::optional<int64_t> step, const StatusOr<std::string>& checkpoint);

}  // namespace millrace
