// Low-priority threads.
#pragma once

namespace millrace {

// Lowers the calling thread's priority (nice 12): it runs on idle cores, and gets about a fifteenth of a core where all
// are busy. An unprivileged thread cannot raise its priority again, so use this only for threads that end with their
// work. A no-op if the system forbids it.
void LowerThreadPriority();

}  // namespace millrace
