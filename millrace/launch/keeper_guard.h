// The guard process, which cleans up after a keeper that was killed.
#pragma once

#include "absl/functional/function_ref.h"

namespace millrace::launch {

// Forks. In the child, which becomes the keeper, it returns immediately; the child gets SIGTERM if the guard dies. In
// the parent, the guard, it never returns: it waits for the child, kills the descendants that are left, and exits with
// the child's code, after calling `clean_up`. It passes SIGTERM on to the child, by sigqueue.
void SplitOffGuard(absl::FunctionRef<void()> clean_up);

// Kills all descendants of this process and waits until they are gone. Gives up after a few seconds on processes that
// cannot be killed (another user's, or stuck in the kernel).
void KillAllBelow();

}  // namespace millrace::launch
