// Finds and signals the descendants of this process, and no other processes.
#pragma once

#include <sys/types.h>

#include <vector>

namespace millrace::launch {

// Makes this process a subreaper: orphaned descendants become its children instead of init's. Whatever a program starts
// can then be found, even after setsid or the end of its parent.
void AdoptOrphans();

// Identifies a process by pid and start time, which a later process with the same pid does not share.
struct ProcessId {
  pid_t pid = 0;
  unsigned long long start = 0;
  pid_t parent = 0;
};

// All descendants of `root`, without itself and without zombies, in no particular order.
std::vector<ProcessId> Descendants(pid_t root);

// Sends the signal to exactly that process, never to another one that has reused its pid. Returns false if the process
// has ended or may not be signalled.
bool SignalProcess(const ProcessId& process, int signal);

// Signals all descendants of this process except those in `except` and their descendants. Returns how many there were.
int SignalDescendants(int signal, const std::vector<pid_t>& except = {});

}  // namespace millrace::launch
