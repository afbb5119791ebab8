// The first process of a container.
#pragma once

namespace millrace::launch {

// In a process that is not PID 1: returns immediately. Otherwise forks, and returns in the child. PID 1 stays behind:
// it passes signals on to the child, because the kernel ignores those that it has no handler for; reaps the processes
// that lost their parents; and exits as the child does (128 + N after signal N), which ends everything else. Call it
// first in main, before there are threads.
void SplitOffInit();

}  // namespace millrace::launch
