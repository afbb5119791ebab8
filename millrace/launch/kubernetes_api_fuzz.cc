// What an API server answers must not crash the process that asks.
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/launch/kubernetes_api.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto answer = millrace::ParseHttpAnswer(bytes);
  (void)millrace::EndOfJob(answer.ok() ? answer->body : bytes);
  return 0;
}
