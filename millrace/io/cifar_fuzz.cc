// Fuzzes the reader of CIFAR-10: the bytes as they are, and filled up to whole records.
#include <cstddef>
#include <cstdint>

#include "millrace/io/cifar.h"
#include "millrace/io/memory_files_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  constexpr size_t kRecordBytes = 3073;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  MemoryFiles files;
  files.files["batches.meta.txt"] = bytes;
  for (const bool whole : {false, true}) {
    if (whole) bytes.resize((size / kRecordBytes + 1) * kRecordBytes);
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                             "data_batch_5.bin", "test_batch.bin"}) {
      files.files[name] = bytes;
    }
    const StatusOr<CifarRecords> batch = ReadCifarBatch("test_batch.bin", &files);
    if (batch.ok()) batch->labels.DebugString();
    const StatusOr<CifarFolder> all = ReadCifarFolder("", &files);
    if (all.ok()) all->train.labels.DebugString();
  }
  return 0;
}
