// The cores that a process may run on: what its container, taskset or its launcher left it.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// Those of the calling thread, ascending; threads and programs that it starts have the same. Empty where the system does not tell. A thread that follows another
// one (CoreFollower) is asked for those it could run on.
std::vector<int> AllowedCores();

// How many these are, one at least: what pools of threads have by default. std::thread::hardware_concurrency() counts all cores of the machine instead.
int AllowedCoreCount();

// The calling thread, and what it starts from now on, runs on these alone. FAILED_PRECONDITION: it may use none of them, and is where it was.
Status BindToCores(const std::vector<int>& cores);

// The core that the calling thread is on at this moment; negative where the system does not tell.
int CurrentCore();

// Keeps the thread that made it on the core of another one, for two threads that wait for each other by turns where there are no cores to spare: whoever is woken
// then finds the core free, and takes none from others. One for each thread.
class CoreFollower {
 public:
  CoreFollower();
  ~CoreFollower();
  CoreFollower(const CoreFollower&) = delete;
  CoreFollower& operator=(const CoreFollower&) = delete;

  // The other one was on `core` (negative: nobody knows). Once may be chance: it is followed when it is found there again.
  void Follow(int core);
  // Wherever the system likes.
  void Leave();
  // Leave, if the calling thread follows one: before it starts a thread, which would have its cores for ever.
  static void LeaveHere();
  const std::vector<int>& allowed() const { return allowed_; }
  // Negative: none.
  int core() const { return at_; }

 private:
  const std::vector<int> allowed_;
  int seen_ = -1;
  int at_ = -1;
};

// "0-3,8", as Linux writes it.
std::string CoreList(std::vector<int> cores);

}  // namespace millrace
