// The processes that came from this one, and no others.
#pragma once

#include <sys/types.h>

#include <vector>

namespace millrace::launch {

// Orphans below this process become its children from now on, and no longer init's: whatever a program starts can then be found, also what called
// setsid or whose parent has ended.
void AdoptOrphans();

// A process, and when it started: a number that a later process of the same pid does not have.
struct ProcessId {
  pid_t pid = 0;
  unsigned long long start = 0;
  pid_t parent = 0;
};

// All processes below `root`, itself not included, in no order; zombies are left out.
std::vector<ProcessId> Descendants(pid_t root);

// Sends the signal to that very process. A process that has ended meanwhile, and one that has its pid since, get nothing. False when there was nobody to
// send it to, or nobody that may be sent one.
bool SignalProcess(const ProcessId& process, int signal);

// Signals all below this process but `except` and those below them; says how many there were.
int SignalDescendants(int signal, const std::vector<pid_t>& except = {});

}  // namespace millrace::launch
