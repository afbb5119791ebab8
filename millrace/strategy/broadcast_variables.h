// Equal variables on all workers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "millrace/api/output.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

// An op that gives all workers the values that the global variables have on `root`: build it last, and run it on all of
// them. The scope fails with INVALID_ARGUMENT for variables of strings and the like.
Operation BroadcastGlobalVariables(const Scope& scope, int root = 0);

struct BroadcastHookOptions {
  int root = 0;
  bool is_root = false;  // whether this worker is it
  // Ops to run afterwards, which depend on the values; called when the hook begins.
  std::function<std::vector<Operation>(const Scope& scope)> after = nullptr;
};
// Runs it in each new session, before the first step.
std::shared_ptr<SessionRunHook> NewBroadcastVariablesHook(BroadcastHookOptions options = {});

}  // namespace millrace
