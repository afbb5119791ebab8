// What each task did between two looks at a cluster.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/cluster/cluster_status.h"

namespace millrace {

// How fast bytes can go, in GB/s; 0: not known.
struct Ceilings {
  double same_host = 0;
  double between_hosts = 0;
};

// Of a task to one peer.
struct PeerRate {
  std::string peer = {};  // "/job:ps/replica:0/task:0" where it is the address of a task, else as the task gave it
  bool outgoing = false;
  std::string lane = {};
  std::string why_not_better = {};
  // Since the task started.
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t calls = 0;
  // Between the two looks, both ways together.
  double gigabytes_per_second = 0;
  double calls_per_second = 0;
  double share = 0;  // of the ceiling; 0: not known
};

struct TaskRate {
  std::string task = {};     // "/job:ps/replica:0/task:0"
  std::string address = {};
  // Why there are no rates: "is TensorFlow's, which tells no figures". Empty: there are.
  std::string unknown = {};
  double seconds = 0;  // between its two answers, by its own clock
  double cores = 0;    // that it may use; 0: not known
  double busy_cores = 0;
  // Of its host, with all that runs there; 0: not known.
  double host_cores = 0;
  double host_busy_cores = 0;
  double steps_per_second = 0;  // driven here
  double parts_per_second = 0;  // run here
  double in_steps = 0;          // how many of its steps were under way, on average: below 1 it makes pauses
  bool drives = false;          // steps that it drives ended, or are under way
  bool runs = false;            // the same of parts
  // Of all its bytes, as it tells or as its peers do, whichever is more.
  double gigabytes_per_second = 0;
  double link_share = 0;  // of the ceiling; 0: not known
  std::vector<PeerRate> peers = {};

  double busy() const { return cores > 0 ? busy_cores / cores : 0; }
};

// One for each task of `after`, in its order. A task has no rates when it did not answer both times, was restarted in between, or has a clock that
// did not go forward. Clocks of tasks are not compared with each other. Pure.
std::vector<TaskRate> RatesOf(absl::Span<const TaskView> before, absl::Span<const TaskView> after, const Ceilings& ceilings);

// The host of "host:port".
std::string HostOf(const std::string& address);

}  // namespace millrace
