// The task that an error is about, attached to the status, so that a report need not search its message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// `task` is "/job:ps/replica:0/task:0". The first blame stays: whoever is nearest to the fault knows best. It travels
// within the process only.
Status BlameTask(Status status, absl::string_view task);
// Empty if the error is about no task, or about one that nobody named.
std::string BlamedTask(const Status& status);

}  // namespace millrace
