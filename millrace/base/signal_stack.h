// A stack of its own for the signal handlers that run on a thread.
#pragma once

namespace millrace {

// Gives this thread an alternate signal stack until it ends, unless it has one; a handler that is installed with
// SA_ONSTACK runs there. Call it before code that uses the stack pointer for something else, as oneDNN's generated
// matrix products do: a handler on that "stack" would overwrite the heap. Cheap after the first call.
void HaveSignalStack();

}  // namespace millrace
