// Any text as TF_CONFIG.
#include <cstddef>
#include <cstdint>

#include "millrace/cluster/task_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = millrace::TaskConfig::Parse(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (config.ok() && config->num_workers() < 1) __builtin_trap();
  return 0;
}
