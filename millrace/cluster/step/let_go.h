// Deregisters a cancellation callback from code that may itself run within that cancellation.
#pragma once

#include "millrace/base/cancellation.h"

namespace millrace {

// CancellationManager::Deregister would wait for running callbacks and could deadlock if this runs on the stack of one.
// Only for callbacks that own what they use, so that one that still runs does no harm.
inline void LetGo(CancellationManager* cancellation, CancellationManager::Token token) {
  if (!cancellation->IsCancelled()) cancellation->Deregister(token);
}

}  // namespace millrace
