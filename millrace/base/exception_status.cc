#include "millrace/base/exception_status.h"

#include <stdexcept>

namespace millrace {

Status ExceptionStatus(const std::exception& exception) {
  if (const auto* known = dynamic_cast<const OutOfMemory*>(&exception)) return ResourceExhausted(known->what());
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr)
    return ResourceExhausted("out of memory (", exception.what(), ")");
  // A container was asked for more elements than there are addresses.
  if (dynamic_cast<const std::length_error*>(&exception) != nullptr)
    return ResourceExhausted("out of memory: more elements than a container can hold (", exception.what(), ")");
  return Internal("an exception was thrown: ", exception.what());
}

}  // namespace millrace
