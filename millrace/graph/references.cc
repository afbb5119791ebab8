#include "millrace/graph/references.h"

namespace millrace {

Endpoint ReferredVariable(Endpoint reference) {
  while (reference.node->num_inputs() > 0 && IsRef(reference.node->input(0).dtype()) && IsRef(reference.dtype())) {
    reference = reference.node->input(0);
  }
  return reference;
}

}  // namespace millrace
