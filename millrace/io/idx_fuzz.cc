// Fuzzes the IDX reader, plain and gzip.
#include <cstddef>
#include <cstdint>

#include "millrace/io/idx.h"
#include "millrace/io/memory_files_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  MemoryFiles files;
  files.files["bytes"].assign(reinterpret_cast<const char*>(data), size);
  const StatusOr<Tensor> tensor = ReadIdx("bytes", &files);
  if (tensor.ok()) tensor->DebugString();
  return 0;
}
