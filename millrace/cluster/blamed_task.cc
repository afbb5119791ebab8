#include "millrace/cluster/blamed_task.h"

#include "absl/strings/cord.h"

namespace millrace {
namespace {

constexpr absl::string_view kPayload = "millrace/task";

}  // namespace

Status BlameTask(Status status, absl::string_view task) {
  if (!status.ok() && !status.GetPayload(kPayload)) status.SetPayload(kPayload, absl::Cord(task));
  return status;
}

std::string BlamedTask(const Status& status) {
  const absl::optional<absl::Cord> task = status.GetPayload(kPayload);
  return task ? std::string(*task) : "";
}

}  // namespace millrace
