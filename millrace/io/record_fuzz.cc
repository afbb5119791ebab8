// Fuzzes the TFRecord reader, plain and compressed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/io/memory_files_testing.h"
#include "millrace/io/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  MemoryFiles files;
  files.files["bytes"].assign(reinterpret_cast<const char*>(data), size);
  for (const Compression compression : {Compression::kNone, Compression::kZlib, Compression::kGzip}) {
    const auto reader = RecordReader::Open(&files, "bytes", compression);
    std::string record;
    while (reader.ok()) {
      const StatusOr<bool> more = (*reader)->Read(&record);
      if (!more.ok() || !*more) break;
    }
  }
  return 0;
}
