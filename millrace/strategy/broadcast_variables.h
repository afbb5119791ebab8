// Equal variables on all workers.
#pragma once

#include <memory>

#include "millrace/api/output.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

// An op that gives all workers the values that the global variables have on `root`: build it last, and run it on all of
// them. The scope fails with INVALID_ARGUMENT for variables of strings and the like.
Operation BroadcastGlobalVariables(const Scope& scope, int root = 0);

// Runs it in each new session, before the first step.
std::shared_ptr<SessionRunHook> NewBroadcastVariablesHook(int root = 0);

}  // namespace millrace
