// The barrier between code that throws and code that returns a Status.
//
// Millrace throws nothing itself, except OutOfMemory where a function has no Status to return; containers throw when
// memory runs out. Such an exception ends the kernel or the request that caused it, never the process: what calls
// kernels, constructors of kernels, request handlers, and closures of pools puts this barrier around them.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "millrace/base/status.h"

namespace millrace {

// Memory ran out, and it is known what for.
class OutOfMemory : public std::bad_alloc {
 public:
  // `text` says for what and how much: "no memory for a tensor of float[1000] (4000 bytes)".
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// RESOURCE_EXHAUSTED if memory ran out or a container would have become larger than possible; INTERNAL for any other
// exception.
Status ExceptionStatus(const std::exception& exception);

// Calls `body`, which returns a Status or a StatusOr; an exception becomes the status. Costs nothing if none is thrown.
template <typename Body>
auto CatchExceptions(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& exception) {
    return ExceptionStatus(exception);
  }
}

}  // namespace millrace
