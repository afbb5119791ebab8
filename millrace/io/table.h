// Sorted tables: the file format of LevelDB's tables, in which TensorFlow keeps the index of a checkpoint.
//
// A table is a sequence of blocks of sorted entries, each with a checksum, then a block that says where they
// are, and a footer that says where that is.
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

// Writes a table into a file that stays the caller's: neither synced nor closed.
class TableWriter {
 public:
  explicit TableWriter(WritableFile* file);
  // Keys come in strictly increasing order of their bytes (INVALID_ARGUMENT otherwise).
  Status Add(absl::string_view key, absl::string_view value);
  // Nothing may follow.
  Status Finish();

 private:
  // Entries that share the beginnings of their keys, but for every `restart_interval`th.
  class Block {
   public:
    explicit Block(int restart_interval) : restart_interval_(restart_interval) {}
    void Add(absl::string_view key, absl::string_view value);
    bool empty() const { return bytes_.empty(); }
    // Bytes that Take would give.
    size_t size() const { return bytes_.size() + (restarts_.size() + 1) * sizeof(uint32_t); }
    // The whole block; empty again after.
    std::string Take();

   private:
    const int restart_interval_;
    std::string bytes_;
    std::string last_key_;
    std::vector<uint32_t> restarts_ = {0};
    int since_restart_ = 0;
  };

  // Writes a block; its place, as the index keeps it.
  StatusOr<std::string> Write(std::string block);
  Status FlushEntries();

  WritableFile* const file_;
  uint64_t offset_ = 0;
  bool any_ = false;
  std::string last_key_;
  Block entries_{16};
  // The block before, whose entry in the index waits for the next key: a short key between the two will do.
  std::string flushed_place_;
  Block index_{1};
};

// Reads a table. Every block that is looked at is checked first: DATA_LOSS names the file and the place for a
// wrong checksum, entries that make no sense or are out of order, and INVALID_ARGUMENT one that is no table.
// Thread-safe.
class Table {
 public:
  static StatusOr<std::unique_ptr<Table>> Open(FileSystem* files, const std::string& path);

  // NOT_FOUND when there is no such key.
  StatusOr<std::string> Find(absl::string_view key) const;
  // All entries in order; stops at the first error that `visit` gives. Also what checks a whole file.
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
  std::string index_;  // the block of places
};

}  // namespace millrace
