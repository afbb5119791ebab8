// The rates of each task between two snapshots of a cluster.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/cluster/watch/cluster_status.h"

namespace millrace {

// The maximum bandwidth, in GB/s; 0 if unknown.
struct Ceilings {
  double same_host = 0;
  double between_hosts = 0;
};

// The traffic of a task with one peer.
struct PeerRate {
  std::string peer = {};  // "/job:ps/replica:0/task:0" if it is a task's address, otherwise as the task reported it
  bool outgoing = false;
  std::string lane = {};
  std::string why_not_better = {};
  // Since the task started.
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t calls = 0;
  // Between the two snapshots, both directions together.
  double gigabytes_per_second = 0;
  double calls_per_second = 0;
  double share = 0;  // of the ceiling; 0: unknown
};

struct TaskRate {
  std::string task = {};  // "/job:ps/replica:0/task:0"
  std::string address = {};
  // Why there are no rates; empty if there are.
  std::string unknown = {};
  double seconds = 0;  // between its two answers, by its own clock
  double cores = 0;    // that it may use; 0: unknown
  double busy_cores = 0;
  // Of its whole host, including other programs; 0 if unknown.
  double host_cores = 0;
  double host_busy_cores = 0;
  double steps_per_second = 0;  // driven here
  double parts_per_second = 0;  // run here
  double in_steps = 0;          // the average number of its steps in flight; below 1 there are pauses
  bool drives = false;          // it drove steps that ended or are in flight
  bool runs = false;            // likewise for parts
  // Of all its traffic, as reported by itself or by its peers, whichever is more.
  double gigabytes_per_second = 0;
  double link_share = 0;  // of the ceiling; 0: unknown
  std::vector<PeerRate> peers = {};

  double busy() const { return cores > 0 ? busy_cores / cores : 0; }
};

// One entry for each task of `after`, in its order. A task has no rates if it did not answer both times, was restarted
// in between, or its clock did not advance. Clocks of different tasks are not compared. A pure function.
std::vector<TaskRate> RatesOf(absl::Span<const TaskView> before, absl::Span<const TaskView> after,
                              const Ceilings& ceilings);

// The host of "host:port".
std::string HostOf(const std::string& address);

}  // namespace millrace
