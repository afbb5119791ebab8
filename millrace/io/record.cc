#include "millrace/io/record.h"

#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"

namespace millrace {
namespace {

constexpr size_t kLengthSize = 8;
constexpr size_t kCrcSize = 4;

}  // namespace

StatusOr<std::unique_ptr<RecordWriter>> RecordWriter::Create(FileSystem* files, const std::string& path,
                                                             Compression compression) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->OpenWritable(path));
  MR_ASSIGN_OR_RETURN(file, Compressed(std::move(file), path, compression));
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(file)));
}

Status RecordWriter::Write(absl::string_view record) {
  std::string header, footer;
  PutFixed64(&header, record.size());
  PutFixed32(&header, MaskCrc(Crc32c(header)));
  PutFixed32(&footer, MaskCrc(Crc32c(record)));
  MR_RETURN_IF_ERROR(file_->Append(header));
  MR_RETURN_IF_ERROR(file_->Append(record));
  return file_->Append(footer);
}

StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(FileSystem* files, const std::string& path,
                                                           Compression compression) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, files->OpenSequential(path));
  MR_ASSIGN_OR_RETURN(file, Decompressed(std::move(file), path, compression));
  // Decompress no further than needed, so that the records before a damaged place can still be read.
  const size_t buffer_size = compression == Compression::kNone ? size_t{256} << 10 : 1;
  return std::unique_ptr<RecordReader>(new RecordReader(path, std::move(file), buffer_size));
}

StatusOr<bool> RecordReader::Read(std::string* record) {
  MR_RETURN_IF_ERROR(status_);
  StatusOr<bool> result = ReadNext(record);
  if (!result.ok()) status_ = result.status();
  return result;
}

StatusOr<bool> RecordReader::ReadNext(std::string* record) {
  record->clear();
  header_.clear();
  MR_ASSIGN_OR_RETURN(size_t got, input_.Read(kLengthSize + kCrcSize, &header_));
  if (got == 0) return false;
  if (got < kLengthSize + kCrcSize) return DataLoss(path_, ": truncated record at ", offset_);
  const uint64_t length = GetFixed64(header_.data());
  if (UnmaskCrc(GetFixed32(header_.data() + kLengthSize)) != Crc32c({header_.data(), kLengthSize})) {
    return DataLoss(path_, ": corrupted record at ", offset_, offset_ == 0 ? " (Is this even a TFRecord file?)" : "",
                    ": the checksum of its length is wrong");
  }
  if (length > UINT64_MAX - kCrcSize) return DataLoss(path_, ": truncated record at ", offset_);
  MR_ASSIGN_OR_RETURN(got, input_.Read(length + kCrcSize, record));
  if (got < length + kCrcSize) return DataLoss(path_, ": truncated record at ", offset_);
  const uint32_t stored = UnmaskCrc(GetFixed32(record->data() + length));
  record->resize(length);
  if (Crc32c(*record) != stored) {
    return DataLoss(path_, ": corrupted record at ", offset_, ": the checksum of its ", length, " bytes is wrong");
  }
  offset_ = input_.offset();
  return true;
}

}  // namespace millrace
