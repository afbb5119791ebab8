// TFRecord files: a sequence of byte strings, each with its length and checksums of both.
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

// One thread at a time.
class RecordWriter {
 public:
  static StatusOr<std::unique_ptr<RecordWriter>> Create(FileSystem* files, const std::string& path,
                                                        Compression compression = Compression::kNone);
  Status Write(absl::string_view record);
  // What was written is in the file after Flush, and on the disk after Sync.
  Status Flush() { return file_->Flush(); }
  Status Sync() { return file_->Sync(); }
  // Flushes too. Nothing may follow.
  Status Close() { return file_->Close(); }

 private:
  explicit RecordWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<WritableFile> file_;
};

// One thread at a time. DATA_LOSS, naming the file and the offset (in what is decompressed) of the record, for whatever is
// truncated or damaged; the record's length is believed only after its checksum, and memory grows only with what
// is really there. After an error the same error comes again.
class RecordReader {
 public:
  static StatusOr<std::unique_ptr<RecordReader>> Open(FileSystem* files, const std::string& path,
                                                      Compression compression = Compression::kNone);
  // The next record; false at the end of the file.
  StatusOr<bool> Read(std::string* record);
  // Where the next record begins.
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
