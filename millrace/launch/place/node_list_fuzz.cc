// Feeds arbitrary text to the parsers of Slurm's lists.
#include <cstddef>
#include <cstdint>

#include "millrace/launch/place/node_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::launch;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto names = ExpandNodeList(text); names.ok()) {
    size_t characters = 0;
    for (const std::string& name : *names) {
      if (name.empty()) __builtin_trap();
      characters += name.size();
    }
    if (names->empty() || names->size() > kMaxNodes || characters > kMaxNodeCharacters) __builtin_trap();
  }
  if (const auto counts = ExpandCounts(text); counts.ok() && counts->size() > kMaxNodes) __builtin_trap();
  return 0;
}
