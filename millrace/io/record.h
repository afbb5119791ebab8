// TFRecord files: a sequence of byte strings, each stored with its length and checksums of both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/buffered_input.h"
#include "millrace/io/gzip.h"

namespace millrace {

// Not thread-safe.
class RecordWriter {
 public:
  static StatusOr<std::unique_ptr<RecordWriter>> Create(FileSystem* files, const std::string& path,
                                                        Compression compression = Compression::kNone);
  Status Write(absl::string_view record);
  // Written records are visible to readers of the file after Flush, and durable after Sync.
  Status Flush() { return file_->Flush(); }
  Status Sync() { return file_->Sync(); }
  // Flushes, then closes. No other call may follow.
  Status Close() { return file_->Close(); }

 private:
  explicit RecordWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<WritableFile> file_;
};

// Not thread-safe. DATA_LOSS, naming the file and the record's offset (in the decompressed data), for anything
// truncated or damaged. The length is verified by its checksum before it is used, and memory grows only with data
// actually read. After an error every later call returns that error.
class RecordReader {
 public:
  static StatusOr<std::unique_ptr<RecordReader>> Open(FileSystem* files, const std::string& path,
                                                      Compression compression = Compression::kNone);
  // Reads the next record; returns false at the end of the file.
  StatusOr<bool> Read(std::string* record);
  // The offset of the next record.
  uint64_t offset() const { return offset_; }

 private:
  RecordReader(std::string path, std::unique_ptr<SequentialFile> file, size_t buffer_size)
      : path_(std::move(path)), input_(std::move(file), buffer_size) {}
  StatusOr<bool> ReadNext(std::string* record);

  const std::string path_;
  BufferedInput input_;
  uint64_t offset_ = 0;
  std::string header_;
  Status status_;
};

}  // namespace millrace
