#include "millrace/net/lane/medium.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace::net {

Status LaneMedium::Allowed(const LaneOptions& options) const {
  if (options.kind != LaneKind::kAuto && options.kind != kind())
    return FailedPrecondition("this task was told to use ", LaneKindName(options.kind));
  return absl::OkStatus();
}

absl::Span<const LaneMedium* const> LaneMedia() {
  static const LaneMedium* const kMedia[] = {UnixMedium(), TcpMedium()};
  return kMedia;
}

StatusOr<DialledLane> DialFastest(LaneCore* core, const LaneOffer& offer, const std::string& host,
                                  absl::Time deadline) {
  DialledLane lane;
  Status failed;
  for (const LaneMedium* medium : LaneMedia()) {
    Status status = medium->Allowed(core->options);
    if (status.ok()) {
      StatusOr<Fd> fd = medium->Dial(core, offer, host, deadline);
      if (fd.ok()) {
        lane.medium = medium;
        lane.fd = *std::move(fd);
        return lane;
      }
      status = fd.status();
    }
    if (!lane.why_not_better.empty()) lane.why_not_better += ", and ";
    absl::StrAppend(&lane.why_not_better, status.message());
    failed = Status(status.code(), lane.why_not_better);
  }
  return failed;
}

}  // namespace millrace::net
