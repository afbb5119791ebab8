#include "millrace/cluster/watch/measure_clock.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/cluster/watch/status_service.h"

namespace millrace {
namespace {

// The bounds of the offset.
struct Bounds {
  absl::Duration least = -absl::InfiniteDuration();
  absl::Duration most = absl::InfiniteDuration();
};

StatusOr<Bounds> Exchange(net::Channel* channel, const MeasureClockOptions& options) {
  struct Answer {
    Notification came;
    absl::Time at;
    StatusOr<net::Bytes> bytes = Internal("no answer");
  };
  auto answer = std::make_shared<Answer>();
  const absl::Time asked = options.clock->Now();
  channel->Call(StatusService::kMethod, net::Bytes(), {.timeout = options.timeout},
                [answer, clock = options.clock](StatusOr<net::Bytes> bytes) {
                  answer->at = clock->Now();
                  answer->bytes = std::move(bytes);
                  answer->came.Notify();
                });
  answer->came.Wait();
  if (!answer->bytes.ok()) return answer->bytes.status();
  TaskStatus status;
  MR_RETURN_IF_ERROR(net::Parse(*answer->bytes, &status));
  const absl::Time theirs = absl::FromUnixMicros(status.now_micros());
  // The task's time is truncated to microseconds.
  return Bounds{.least = theirs - answer->at, .most = theirs + absl::Microseconds(1) - asked};
}

}  // namespace

StatusOr<ClockReading> MeasureClock(net::Transport* transport, const std::string& address,
                                    const MeasureClockOptions& options) {
  const std::shared_ptr<net::Channel> channel = transport->Connect(address);
  std::optional<Bounds> all, narrowest;
  Status failure = InvalidArgument("no exchanges were asked for");
  for (int i = 0; i < options.exchanges; ++i) {
    const StatusOr<Bounds> one = Exchange(channel.get(), options);
    if (!one.ok()) {
      if (!narrowest) failure = one.status();
      if (!narrowest && i == 0) return failure;  // do not ask a task that is gone eight times
      continue;
    }
    if (!narrowest || one->most - one->least < narrowest->most - narrowest->least) narrowest = *one;
    if (!all) all = Bounds();
    all->least = std::max(all->least, one->least);
    all->most = std::min(all->most, one->most);
  }
  if (!narrowest) return failure;
  // If a clock was set meanwhile, the bounds do not intersect.
  const Bounds& bounds = all->least <= all->most ? *all : *narrowest;
  return ClockReading{.offset = (bounds.least + bounds.most) / 2, .error = (bounds.most - bounds.least) / 2};
}

}  // namespace millrace
