#include "millrace/io/mapped_bundle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/str_format.h"
#include "millrace/base/crc32c.h"

namespace millrace {
namespace {

// Smaller tensors are cheaper to copy than to keep a page each.
constexpr int64_t kMinMapped = 64 << 10;
constexpr uint64_t kChecksumSize = uint64_t{1} << 20;

// A whole file, copy-on-write.
class MappedFile {
 public:
  static StatusOr<std::shared_ptr<MappedFile>> Open(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    struct stat info = {};
    if (fstat(fd, &info) != 0 || info.st_size == 0) {
      close(fd);
      return DataLoss(path, " is empty");
    }
    const auto size = static_cast<size_t>(info.st_size);
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    const int error = errno;
    close(fd);
    if (memory == MAP_FAILED) return absl::ErrnoToStatus(error, absl::StrCat("cannot map ", path));
    return std::make_shared<MappedFile>(static_cast<char*>(memory), size);
  }
  MappedFile(char* data, size_t size) : data_(data), size_(size) {}
  ~MappedFile() { munmap(data_, size_); }
  MappedFile(const MappedFile&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* const data_;
  const size_t size_;
};

class MappedBuffer : public Buffer {
 public:
  MappedBuffer(std::shared_ptr<MappedFile> file, uint64_t offset, uint64_t size)
      : Buffer(file->data() + offset, size), file_(std::move(file)) {}

 private:
  const std::shared_ptr<MappedFile> file_;
};

// Part of a mapped tensor, for one thread.
struct ChecksumPiece {
  const char* data;
  uint64_t size;
  uint32_t crc = 0;
};

// One that is whole, plain, large and aligned.
bool CanMap(const BundleTensor& tensor) {
  if (!IsPlain(tensor.dtype) || tensor.pieces.size() != 1) return false;
  const pb::BundleEntryProto& entry = tensor.pieces[0].entry;
  const StatusOr<Shape> stored = Shape::FromProto(entry.shape());
  return entry.size() >= kMinMapped && entry.offset() % static_cast<int64_t>(Buffer::kAlignment) == 0 && stored.ok() &&
         *stored == tensor.shape && tensor.dtype != DType::kBool &&
         static_cast<uint64_t>(entry.size()) ==
             static_cast<uint64_t>(tensor.shape.num_elements()) * SizeOf(tensor.dtype);
}

}  // namespace

StatusOr<std::vector<Tensor>> ReadMapped(const BundleReader& reader, absl::Span<const std::string> names,
                                         ThreadPool* pool) {
  std::vector<Tensor> tensors(names.size());
  std::vector<BundleTensor> found(names.size()), copied;
  std::vector<Tensor*> outputs;
  std::map<int, std::shared_ptr<MappedFile>> files;
  std::vector<ChecksumPiece> pieces;
  std::vector<std::pair<size_t, size_t>> pieces_of(names.size());  // begin and end
  for (size_t i = 0; i < names.size(); ++i) {
    MR_ASSIGN_OR_RETURN(found[i], reader.Find(names[i]));
    pieces_of[i] = {pieces.size(), pieces.size()};
    if (!CanMap(found[i])) {
      MR_ASSIGN_OR_RETURN(tensors[i], Tensor::Make(found[i].dtype, found[i].shape));
      copied.push_back(found[i]);
      outputs.push_back(&tensors[i]);
      continue;
    }
    const pb::BundleEntryProto& entry = found[i].pieces[0].entry;
    const std::string path = BundleDataPath(reader.prefix(), entry.shard_id(), reader.num_shards());
    std::shared_ptr<MappedFile>& file = files[entry.shard_id()];
    if (file == nullptr) {
      MR_ASSIGN_OR_RETURN(file, MappedFile::Open(path));
    }
    const auto offset = static_cast<uint64_t>(entry.offset()), size = static_cast<uint64_t>(entry.size());
    if (offset > file->size() || size > file->size() - offset)
      return DataLoss("tensor ", names[i], ": ", path, " is truncated: it ends at ", file->size());
    tensors[i] = Tensor(found[i].dtype, found[i].shape, MakeRef<MappedBuffer>(file, offset, size));
    for (uint64_t at = 0; at < size; at += kChecksumSize)
      pieces.push_back({file->data() + offset + at, std::min(kChecksumSize, size - at)});
    pieces_of[i].second = pieces.size();
  }
  pool->ParallelFor(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ChecksumPiece& piece = pieces[static_cast<size_t>(i)];
      piece.crc = Crc32c({piece.data, piece.size});
    }
  });
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [begin, end] = pieces_of[i];
    if (begin == end) continue;
    uint32_t crc = 0;
    for (size_t k = begin; k < end; ++k) crc = JoinCrc32c(crc, pieces[k].crc, pieces[k].size);
    const uint32_t stored = UnmaskCrc(found[i].pieces[0].entry.crc32c());
    if (crc != stored) {
      return DataLoss("tensor ", names[i], " of ", reader.prefix(), " is damaged: the checksum of its bytes is ",
                      absl::StrFormat("%08x, stored is %08x", crc, stored));
    }
  }
  MR_RETURN_IF_ERROR(reader.Read(copied, outputs, pool));
  return tensors;
}

}  // namespace millrace
