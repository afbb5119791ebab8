// Threads that others go before.
#pragma once

namespace millrace {

// From now on the calling thread gets a core when others leave one, and where all are wanted about a fifteenth of one. It cannot go back without
// privileges, so this is for threads that end with their work. Does nothing where the system does not let it.
void LowerThreadPriority();

}  // namespace millrace
