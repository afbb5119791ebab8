// Sorted string tables in LevelDB's file format, which TensorFlow uses for the index of a checkpoint.
//
// A table is a sequence of checksummed blocks of sorted entries, an index block with their locations, and a footer with
// the location of the index block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// Writes a table to a file that the caller owns; neither syncs nor closes it. Not thread-safe.
class TableWriter {
 public:
  explicit TableWriter(WritableFile* file);
  // Keys must be strictly increasing in byte order (INVALID_ARGUMENT otherwise).
  Status Add(absl::string_view key, absl::string_view value);
  // No other call may follow.
  Status Finish();

 private:
  // A block of prefix-compressed entries; every `restart_interval`th stores its whole key.
  class Block {
   public:
    explicit Block(int restart_interval) : restart_interval_(restart_interval) {}
    void Add(absl::string_view key, absl::string_view value);
    bool empty() const { return bytes_.empty(); }
    // The size of what Take would return.
    size_t size() const { return bytes_.size() + (restarts_.size() + 1) * sizeof(uint32_t); }
    // Returns the finished block and clears it.
    std::string Take();

   private:
    const int restart_interval_;
    std::string bytes_;
    std::string last_key_;
    std::vector<uint32_t> restarts_ = {0};
    int since_restart_ = 0;
  };

  // Writes a block and returns its encoded location for the index.
  StatusOr<std::string> Write(std::string block);
  Status FlushEntries();

  WritableFile* const file_;
  uint64_t offset_ = 0;
  bool any_ = false;
  std::string last_key_;
  Block entries_{16};
  // The location of the last written block. Its index entry is added when the next key is known, so that it can be a
  // short key between the two.
  std::string flushed_place_;
  Block index_{1};
};

// Reads a table. Thread-safe. Every block is verified when it is read: DATA_LOSS, naming the file and the offset, for a
// wrong checksum or for malformed or unordered entries; DATA_LOSS too for a file that is not a table.
class Table {
 public:
  static StatusOr<std::unique_ptr<Table>> Open(FileSystem* files, const std::string& path);

  // NOT_FOUND if there is no such key.
  StatusOr<std::string> Find(absl::string_view key) const;
  // Visits all entries in order and stops at the first error that `visit` returns. Thereby verifies the whole file.
  Status ForEach(absl::FunctionRef<Status(absl::string_view key, absl::string_view value)> visit) const;
  const std::string& path() const { return path_; }

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  class Entries;

  Table(std::string path, std::unique_ptr<RandomAccessFile> file, uint64_t file_size)
      : path_(std::move(path)), file_(std::move(file)), file_size_(file_size) {}
  Status ReadFooter();
  static bool TakePlace(absl::string_view* in, Place* place);
  StatusOr<std::string> ReadBlock(Place place) const;

  const std::string path_;
  const std::unique_ptr<RandomAccessFile> file_;
  const uint64_t file_size_;
  std::string index_;  // the index block
};

}  // namespace millrace
