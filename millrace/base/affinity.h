// The cores that a process may run on: what its container, taskset or its launcher left it.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// Those of the calling thread, ascending; threads and programs that it starts have the same. Empty where the system does not tell.
std::vector<int> AllowedCores();

// How many these are, one at least: what pools of threads have by default. std::thread::hardware_concurrency() counts all cores of the machine instead.
int AllowedCoreCount();

// The calling thread, and what it starts from now on, runs on these alone. FAILED_PRECONDITION: it may use none of them, and is where it was.
Status BindToCores(const std::vector<int>& cores);

// The calling thread, and what it starts from now on, waits for its turn when it is woken up, instead of interrupting who is on the core: for tasks that send each other
// messages on a core that they share, whoever is woken by a message goes on when its sender waits, and the answer finds the sender waiting. Nothing happens where the
// system does not allow it, or where the thread is scheduled in another way than usual.
void RunAsBatch();

// "0-3,8", as Linux writes it.
std::string CoreList(std::vector<int> cores);

}  // namespace millrace
