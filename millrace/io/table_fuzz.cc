// Fuzzes the table reader.
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/io/memory_files_testing.h"
#include "millrace/io/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  MemoryFiles files;
  files.files["bytes"].assign(reinterpret_cast<const char*>(data), size);
  const StatusOr<std::unique_ptr<Table>> table = Table::Open(&files, "bytes");
  if (!table.ok()) return 0;
  std::string key;
  // Every key that ForEach visits must be found by Find.
  const bool sound = (*table)
                         ->ForEach([&](absl::string_view k, absl::string_view) {
                           key.assign(k.data(), k.size());
                           return absl::OkStatus();
                         })
                         .ok();
  (*table)->Find(key).status().IgnoreError();
  (*table)->Find("some/name").status().IgnoreError();
  (void)sound;
  return 0;
}
