// Taking a cancellation callback back from code that the cancellation itself may have brought here.
#pragma once

#include "millrace/base/cancellation.h"

namespace millrace {

// Deregister would wait for the callbacks of a cancellation under way, perhaps on whose stack this runs. For callbacks that own what
// they use: one that runs, or will, does no harm.
inline void LetGo(CancellationManager* cancellation, CancellationManager::Token token) {
  if (!cancellation->IsCancelled()) cancellation->Deregister(token);
}

}  // namespace millrace
