#include "millrace/io/idx.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "millrace/io/gzip.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct IdxType {
  uint8_t code;
  DType dtype;
};
constexpr IdxType kTypes[] = {{0x08, DType::kUInt8}, {0x09, DType::kInt8},  {0x0b, DType::kInt16},
                              {0x0c, DType::kInt32}, {0x0d, DType::kFloat}, {0x0e, DType::kDouble}};

uint32_t BigEndian32(const char* p) {
  const auto* b = reinterpret_cast<const uint8_t*>(p);
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

// Converts between the file's byte order and this machine's in place; its own inverse.
void SwapBytes(Tensor* tensor) {
  DispatchMove(tensor->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1) {
      T* elements = tensor->raw<T>();
      const int64_t n = tensor->num_elements();
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (sizeof(T) == 2) elements[i] = __builtin_bswap16(elements[i]);
        if constexpr (sizeof(T) == 4) elements[i] = __builtin_bswap32(elements[i]);
        if constexpr (sizeof(T) == 8) elements[i] = __builtin_bswap64(elements[i]);
      }
    }
  });
}

// Reads exactly `n` bytes; `what` is what they are, for the message.
Status ReadExactly(SequentialFile& file, const std::string& path, absl::string_view what, size_t n, char* buffer) {
  MR_ASSIGN_OR_RETURN(const size_t got, file.Read(n, buffer));
  if (got == n) return absl::OkStatus();
  return DataLoss(path, " is truncated: ", got, " bytes of ", what, " instead of ", n);
}

struct Header {
  DType dtype;
  Shape shape;
};

StatusOr<Header> ReadHeader(SequentialFile& file, const std::string& path) {
  char magic[4];
  MR_RETURN_IF_ERROR(ReadExactly(file, path, "the magic number", sizeof(magic), magic));
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const IdxType& t) { return t.code == static_cast<uint8_t>(magic[2]); });
  const int rank = static_cast<uint8_t>(magic[3]);
  if (magic[0] != 0 || magic[1] != 0 || type == std::end(kTypes) || rank == 0) {
    return InvalidArgument(path, " is not an IDX file: its magic number is 0x",
                           absl::Hex(BigEndian32(magic), absl::kZeroPad8));
  }
  std::string bytes(4 * static_cast<size_t>(rank), '\0');
  MR_RETURN_IF_ERROR(ReadExactly(file, path, "its dimensions", bytes.size(), bytes.data()));
  Shape::Dims dims;
  for (int i = 0; i < rank; ++i) dims.push_back(BigEndian32(bytes.data() + 4 * i));
  StatusOr<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return WithPrefix(absl::StrCat(path, ": "), shape.status());
  return Header{type->dtype, *std::move(shape)};
}

}  // namespace

StatusOr<Tensor> ReadIdx(const std::string& path, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> raw, files->OpenSequential(path));
  MR_ASSIGN_OR_RETURN(const uint64_t file_size, files->FileSize(path));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, Decompressed(std::move(raw), path));
  MR_ASSIGN_OR_RETURN(const Header header, ReadHeader(*file, path));
  // The header may claim more than a file of this size can hold; check before allocating.
  uint64_t bytes;
  if (__builtin_mul_overflow(static_cast<uint64_t>(header.shape.num_elements()), SizeOf(header.dtype), &bytes) ||
      bytes / kMaxGzipExpansion > file_size) {
    return DataLoss(path, " is truncated: its header says ", header.dtype, header.shape.ToString(),
                    ", but the file has only ", file_size, " bytes");
  }
  StatusOr<Tensor> tensor = Tensor::Make(header.dtype, header.shape);
  if (!tensor.ok()) return WithPrefix(absl::StrCat(path, ": "), tensor.status());
  MR_RETURN_IF_ERROR(ReadExactly(*file, path, absl::StrCat("elements of ", header.shape.ToString()), bytes,
                                 static_cast<char*>(tensor->raw_data())));
  char extra;
  MR_ASSIGN_OR_RETURN(const size_t trailing, file->Read(1, &extra));
  if (trailing != 0) {
    return DataLoss(path, " has more bytes than its header says (", header.dtype, header.shape.ToString(), ")");
  }
  SwapBytes(&*tensor);
  return tensor;
}

Status WriteIdx(const Tensor& tensor, const std::string& path, FileSystem* files) {
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const IdxType& t) { return t.dtype == tensor.dtype(); });
  if (type == std::end(kTypes) || tensor.rank() == 0 || tensor.rank() > 255) {
    return InvalidArgument(path, ": a tensor of ", tensor.dtype(), tensor.shape().ToString(),
                           " cannot be stored in an IDX file");
  }
  std::string header = {0, 0, static_cast<char>(type->code), static_cast<char>(tensor.rank())};
  for (int64_t d : tensor.shape().dims()) {
    if (d > 0xffffffff) return InvalidArgument(path, ": a dimension of ", d, " does not fit into IDX");
    const uint32_t swapped = __builtin_bswap32(static_cast<uint32_t>(d));
    header.append(reinterpret_cast<const char*>(&swapped), sizeof(swapped));
  }
  Tensor content = tensor.Clone();
  SwapBytes(&content);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->OpenWritable(path));
  MR_RETURN_IF_ERROR(file->Append(header));
  MR_RETURN_IF_ERROR(file->Append({content.raw<const char>(), content.TotalBytes()}));
  return file->Close();
}

}  // namespace millrace
