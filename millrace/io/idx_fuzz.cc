// Any bytes as an IDX file, plain or gzip.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "millrace/io/idx.h"

namespace millrace {
namespace {

class BytesFile : public SequentialFile {
 public:
  explicit BytesFile(absl::string_view bytes) : rest_(bytes) {}
  StatusOr<size_t> Read(size_t n, char* buffer) override {
    n = std::min(n, rest_.size());
    if (n > 0) std::memcpy(buffer, rest_.data(), n);
    rest_.remove_prefix(n);
    return n;
  }

 private:
  absl::string_view rest_;
};

// One file of the given bytes under every name; nothing can be changed.
class BytesFileSystem : public FileSystem {
 public:
  explicit BytesFileSystem(absl::string_view bytes) : bytes_(bytes) {}
  StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string&) override {
    return std::make_unique<BytesFile>(bytes_);
  }
  StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(const std::string&) override { return ReadOnly(); }
  StatusOr<std::unique_ptr<WritableFile>> OpenWritable(const std::string&, Mode) override { return ReadOnly(); }
  StatusOr<uint64_t> FileSize(const std::string&) override { return bytes_.size(); }
  Status Exists(const std::string&) override { return absl::OkStatus(); }
  StatusOr<bool> IsDirectory(const std::string&) override { return false; }
  Status SyncDirectory(const std::string&) override { return ReadOnly(); }
  Status Rename(const std::string&, const std::string&) override { return ReadOnly(); }
  StatusOr<std::vector<std::string>> List(const std::string&) override { return ReadOnly(); }
  Status MakeDirectories(const std::string&) override { return ReadOnly(); }
  Status Remove(const std::string&) override { return ReadOnly(); }
  Status RemoveTree(const std::string&) override { return ReadOnly(); }
  StatusOr<std::string> MakeTempDirectory(absl::string_view) override { return ReadOnly(); }

 private:
  static Status ReadOnly() { return absl::PermissionDeniedError("read-only"); }
  const absl::string_view bytes_;
};

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  BytesFileSystem files({reinterpret_cast<const char*>(data), size});
  const StatusOr<Tensor> tensor = ReadIdx("bytes", &files);
  if (tensor.ok()) tensor->DebugString();
  return 0;
}
