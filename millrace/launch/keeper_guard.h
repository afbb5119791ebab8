// What survives a keeper.
#pragma once

namespace millrace::launch {

// Splits the process in two. In the child, which is to be the keeper, it returns at once; the child gets SIGTERM should the guard end. The parent, the
// guard, never returns: it waits for the child, kills all that was left below it, and ends with the child's code.
void SplitOffGuard();

// Kills all below this process and waits until it is gone. Gives up after a few seconds on what cannot be killed (another user's, or stuck in the kernel).
void KillAllBelow();

}  // namespace millrace::launch
