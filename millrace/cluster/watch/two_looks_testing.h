// Utilities for tests of rates and bottlenecks. For tests only.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/cluster/watch/bottleneck.h"

namespace millrace {

// Two snapshots of a cluster, and what its tasks did in between.
class TwoLooks {
 public:
  struct Task {
    std::string job;
    int index = 0;
    double busy = 0;  // the fraction of its cores that is busy
    double cores = 2;
    double steps = 0, parts = 0;
    std::string host = "";  // its own when empty
    double clock = 1000;    // seconds
    double seconds = 1;     // between its answers
  };

  TwoLooks& Add(const Task& task) {
    TaskView view;
    view.task = absl::StrCat("/job:", task.job, "/replica:0/task:", task.index);
    view.address =
        absl::StrCat(task.host.empty() ? absl::StrCat(task.job, task.index) : task.host, ":", 2222 + after.size());
    TaskStatus& status = view.status;
    status.set_task(view.task);
    status.set_address(view.address);
    status.set_now_micros(static_cast<int64_t>(task.clock * 1e6));
    status.set_started_micros(status.now_micros() - 60'000'000);
    status.add_devices()->set_incarnation(77 + after.size());
    status.mutable_usage()->set_user_seconds(40);
    status.mutable_usage()->set_system_seconds(3);
    status.mutable_usage()->set_cores(task.cores);
    status.set_steps_finished(500);
    status.set_parts_finished(900);
    before.push_back(view);
    TaskStatus& later = view.status;
    later.set_now_micros(later.now_micros() + static_cast<int64_t>(task.seconds * 1e6));
    later.mutable_usage()->set_user_seconds(40 + 0.75 * task.busy * task.cores * task.seconds);
    later.mutable_usage()->set_system_seconds(3 + 0.25 * task.busy * task.cores * task.seconds);
    later.set_steps_finished(500 + static_cast<int64_t>(task.steps * task.seconds));
    later.set_steps_micros(static_cast<int64_t>(task.steps > 0 ? 0.9 * task.seconds * 1e6 : 0));
    later.set_parts_finished(900 + static_cast<int64_t>(task.parts * task.seconds));
    after.push_back(view);
    return *this;
  }
  TwoLooks& Ps(int index, double busy) { return Add({.job = "ps", .index = index, .busy = busy, .parts = 100}); }
  TwoLooks& Worker(int index, double busy = 0.3) {
    return Add({.job = "worker", .index = index, .busy = busy, .steps = 50, .parts = 50});
  }
  TwoLooks& Workers(int count, double busy = 0.3) {
    for (int i = 0; i < count; ++i) Worker(i, busy);
    return *this;
  }
  // Task `from` reports that it moved that many GB to and from task `to` within the second.
  TwoLooks& Moves(size_t from, size_t to, double gigabytes, bool outgoing = true, const std::string& lane = "tcp") {
    for (auto* views : {&before, &after}) {
      TaskStatus::Peer* peer = (*views)[from].status.add_peers();
      peer->set_peer(outgoing ? (*views)[to].address : absl::StrCat("10.0.0.", to, ":41234"));
      peer->set_outgoing(outgoing);
      peer->set_lane(lane);
      const double so_far = 5 + (views == &after ? gigabytes / 2 : 0);
      peer->set_bytes_sent(static_cast<int64_t>(so_far * 1e9));
      peer->set_bytes_received(static_cast<int64_t>(so_far * 1e9));
      peer->set_calls(views == &after ? 150 : 100);
    }
    return *this;
  }

  Bottleneck Find(const Ceilings& ceilings = {.same_host = 10, .between_hosts = 1}) const {
    return FindBottleneck(before, after, ceilings);
  }

  std::vector<TaskView> before, after;
};

}  // namespace millrace
