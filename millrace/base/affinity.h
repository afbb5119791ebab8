// CPU affinity: the cores that this process may run on, as set by its container, taskset or launcher.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// The affinity mask of the calling thread, ascending; threads and processes that it starts inherit it. Empty if the
// system does not report it. For a thread with a CoreFollower this is the mask from before it began to follow.
std::vector<int> AllowedCores();

// The number of allowed cores, at least 1: the default size of thread pools. Unlike
// std::thread::hardware_concurrency(), which counts every core of the machine, it respects the affinity mask.
int AllowedCoreCount();

// Restricts the calling thread, and whatever it starts afterwards, to `cores`. FAILED_PRECONDITION if it may use none
// of them; the mask is then unchanged.
Status BindToCores(const std::vector<int>& cores);

// The core that the calling thread is running on now; negative if the system does not report it.
int CurrentCore();

// Keeps the thread that created it on the same core as another thread. Meant for two threads that wait for each other
// in turn on a machine without spare cores: the one that is woken finds that core free and displaces nobody. At most
// one per thread.
class CoreFollower {
 public:
  CoreFollower();
  ~CoreFollower();
  CoreFollower(const CoreFollower&) = delete;
  CoreFollower& operator=(const CoreFollower&) = delete;

  // Reports that the other thread was on `core` (negative: unknown). This thread moves there only on the second report
  // in a row, since a single one may be chance.
  void Follow(int core);
  // Restores the thread's original affinity mask.
  void Leave();
  // Leave() on the calling thread's follower, if it has one. Call it before starting a thread, which would otherwise
  // inherit the narrowed mask for good.
  static void LeaveHere();
  const std::vector<int>& allowed() const { return allowed_; }
  // The core that is being followed; negative if none.
  int core() const { return at_; }

 private:
  const std::vector<int> allowed_;
  int seen_ = -1;
  int at_ = -1;
};

// Formats cores as Linux does: "0-3,8".
std::string CoreList(std::vector<int> cores);

}  // namespace millrace
