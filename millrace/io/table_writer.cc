#include <algorithm>

#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"
#include "millrace/io/table.h"
#include "millrace/io/table_format.h"

namespace millrace {
namespace {

// A short key k with last <= k < next.
std::string KeyBetween(absl::string_view last, absl::string_view next) {
  const size_t limit = std::min(last.size(), next.size());
  size_t i = 0;
  while (i < limit && last[i] == next[i]) ++i;
  if (i == limit) return std::string(last);  // one is a prefix of the other
  const auto byte = static_cast<uint8_t>(last[i]);
  if (byte == 0xff || byte + 1 >= static_cast<uint8_t>(next[i])) return std::string(last);
  std::string key(last.substr(0, i + 1));
  key.back() = static_cast<char>(byte + 1);
  return key;
}

// A short key k with k >= last.
std::string KeyAfter(absl::string_view last) {
  for (size_t i = 0; i < last.size(); ++i) {
    if (static_cast<uint8_t>(last[i]) == 0xff) continue;
    std::string key(last.substr(0, i + 1));
    key.back() = static_cast<char>(static_cast<uint8_t>(last[i]) + 1);
    return key;
  }
  return std::string(last);
}

}  // namespace

void TableWriter::Block::Add(absl::string_view key, absl::string_view value) {
  size_t shared = 0;
  if (since_restart_ == restart_interval_) {
    restarts_.push_back(static_cast<uint32_t>(bytes_.size()));
    since_restart_ = 0;
  } else {
    const size_t limit = std::min(last_key_.size(), key.size());
    while (shared < limit && last_key_[shared] == key[shared]) ++shared;
  }
  PutVarint(&bytes_, shared);
  PutVarint(&bytes_, key.size() - shared);
  PutVarint(&bytes_, value.size());
  bytes_.append(key.data() + shared, key.size() - shared);
  bytes_.append(value.data(), value.size());
  last_key_.assign(key.data(), key.size());
  ++since_restart_;
}

std::string TableWriter::Block::Take() {
  for (const uint32_t restart : restarts_) PutFixed32(&bytes_, restart);
  PutFixed32(&bytes_, static_cast<uint32_t>(restarts_.size()));
  restarts_.assign(1, 0);
  since_restart_ = 0;
  last_key_.clear();
  return std::exchange(bytes_, "");
}

TableWriter::TableWriter(WritableFile* file) : file_(file) {}

Status TableWriter::Add(absl::string_view key, absl::string_view value) {
  if (any_ && key <= last_key_) {
    return InvalidArgument("keys of a table must increase, but '", key, "' follows '", last_key_, "'");
  }
  if (!flushed_place_.empty()) {
    index_.Add(KeyBetween(last_key_, key), flushed_place_);
    flushed_place_.clear();
  }
  entries_.Add(key, value);
  last_key_.assign(key.data(), key.size());
  any_ = true;
  return entries_.size() >= table_format::kBlockSize ? FlushEntries() : absl::OkStatus();
}

Status TableWriter::FlushEntries() {
  MR_ASSIGN_OR_RETURN(flushed_place_, Write(entries_.Take()));
  return absl::OkStatus();
}

StatusOr<std::string> TableWriter::Write(std::string block) {
  std::string place;
  PutVarint(&place, offset_);
  PutVarint(&place, block.size());
  block.push_back(table_format::kNotCompressed);
  PutFixed32(&block, MaskCrc(Crc32c(block)));
  MR_RETURN_IF_ERROR(file_->Append(block));
  offset_ += block.size();
  return place;
}

Status TableWriter::Finish() {
  if (!entries_.empty()) MR_RETURN_IF_ERROR(FlushEntries());
  if (!flushed_place_.empty()) index_.Add(KeyAfter(last_key_), flushed_place_);
  MR_ASSIGN_OR_RETURN(std::string footer, Write(Block(1).Take()));  // the (empty) meta index block
  MR_ASSIGN_OR_RETURN(const std::string index, Write(index_.Take()));
  footer += index;
  footer.resize(table_format::kFooterSize - sizeof(uint64_t), '\0');
  PutFixed64(&footer, table_format::kMagic);
  return file_->Append(footer);
}

}  // namespace millrace
