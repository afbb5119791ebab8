#include <snappy.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"
#include "millrace/io/table.h"
#include "millrace/io/table_format.h"

namespace millrace {

// Iterates over the entries of one block, checking bounds at every step.
class Table::Entries {
 public:
  // Returns false if the restart points at its end are malformed.
  static bool Parse(absl::string_view block, Entries* out) {
    if (block.size() < sizeof(uint32_t)) return false;
    const uint64_t restarts = GetFixed32(block.data() + block.size() - sizeof(uint32_t));
    const uint64_t tail = (restarts + 1) * sizeof(uint32_t);
    if (tail > block.size()) return false;
    out->block_ = block.substr(0, block.size() - tail);
    out->restarts_ = block.substr(out->block_.size(), restarts * sizeof(uint32_t));
    out->at_ = 0;
    out->key_.clear();
    return true;
  }

  // Advances to the next entry. Returns false at the end, and, with `*sound` set to false, at an entry that is
  // truncated or out of order.
  bool Next(bool* sound) {
    if (at_ >= block_.size()) return false;
    absl::string_view rest = block_.substr(at_);
    uint64_t shared, unshared, value_size;
    *sound = TakeVarint(&rest, &shared) && TakeVarint(&rest, &unshared) && TakeVarint(&rest, &value_size) &&
             shared <= key_.size() && unshared <= rest.size() && value_size <= rest.size() - unshared;
    if (!*sound) return false;
    const absl::string_view suffix = rest.substr(0, unshared);
    // The shared prefix is equal, so compare the suffixes.
    *sound = at_ == 0 || suffix > absl::string_view(key_).substr(shared);
    if (!*sound) return false;
    key_.resize(shared);
    key_.append(suffix.data(), suffix.size());
    value_ = rest.substr(unshared, value_size);
    at_ = static_cast<size_t>(value_.data() + value_.size() - block_.data());
    return true;
  }

  // Moves to the last restart point whose key is less than `key`.
  bool Seek(absl::string_view key) {
    size_t low = 0, high = restarts_.size() / sizeof(uint32_t);
    while (low + 1 < high) {
      const size_t middle = (low + high) / 2;
      absl::string_view found;
      if (!KeyAt(Restart(middle), &found)) return false;
      (found < key ? low : high) = middle;
    }
    at_ = high == 0 ? 0 : Restart(low);
    key_.clear();
    return at_ <= block_.size();
  }

  const std::string& key() const { return key_; }
  absl::string_view value() const { return value_; }

 private:
  size_t Restart(size_t i) const { return GetFixed32(restarts_.data() + i * sizeof(uint32_t)); }
  bool KeyAt(size_t at, absl::string_view* key) const {
    if (at >= block_.size()) return false;
    absl::string_view rest = block_.substr(at);
    uint64_t shared, unshared, value_size;
    if (!TakeVarint(&rest, &shared) || !TakeVarint(&rest, &unshared) || !TakeVarint(&rest, &value_size)) return false;
    if (shared != 0 || unshared > rest.size()) return false;
    *key = rest.substr(0, unshared);
    return true;
  }

  absl::string_view block_, restarts_, value_;
  std::string key_;
  size_t at_ = 0;
};

StatusOr<std::unique_ptr<Table>> Table::Open(FileSystem* files, const std::string& path) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->OpenRandomAccess(path));
  MR_ASSIGN_OR_RETURN(const uint64_t size, files->FileSize(path));
  std::unique_ptr<Table> table(new Table(path, std::move(file), size));
  MR_RETURN_IF_ERROR(table->ReadFooter());
  return table;
}

bool Table::TakePlace(absl::string_view* in, Place* place) {
  return TakeVarint(in, &place->offset) && TakeVarint(in, &place->size);
}

Status Table::ReadFooter() {
  using table_format::kFooterSize;
  char bytes[kFooterSize];
  if (file_size_ < kFooterSize) {
    return DataLoss(path_, " is truncated: it has ", file_size_, " bytes, and a table at least ", kFooterSize);
  }
  MR_ASSIGN_OR_RETURN(const size_t got, file_->Read(file_size_ - kFooterSize, kFooterSize, bytes));
  if (got < kFooterSize) return DataLoss(path_, " is truncated: it ends in its footer");
  absl::string_view footer(bytes, kFooterSize);
  if (GetFixed64(bytes + kFooterSize - sizeof(uint64_t)) != table_format::kMagic) {
    return DataLoss(path_, " is not a table, or is truncated: its last 8 bytes are not the magic number");
  }
  footer.remove_suffix(sizeof(uint64_t));
  Place others, index;
  const bool taken = TakePlace(&footer, &others) && TakePlace(&footer, &index);
  // Only the footer has no checksum, so it must match a writer's output exactly.
  std::string expected;
  for (const uint64_t number : {others.offset, others.size, index.offset, index.size}) PutVarint(&expected, number);
  expected.resize(kFooterSize - sizeof(uint64_t), '\0');
  if (!taken || expected != absl::string_view(bytes, expected.size())) {
    return DataLoss(path_, " is damaged: its footer is malformed");
  }
  MR_RETURN_IF_ERROR(ReadBlock(others).status());
  MR_ASSIGN_OR_RETURN(index_, ReadBlock(index));
  return absl::OkStatus();
}

StatusOr<std::string> Table::ReadBlock(Place place) const {
  using table_format::kTrailerSize;
  if (place.size > file_size_ || file_size_ - place.size < kTrailerSize ||
      place.offset > file_size_ - place.size - kTrailerSize) {
    return DataLoss(path_, " is damaged or truncated: a block of ", place.size, " bytes at ", place.offset,
                    " is past its end at ", file_size_);
  }
  std::string block(place.size + kTrailerSize, '\0');
  MR_ASSIGN_OR_RETURN(const size_t got, file_->Read(place.offset, block.size(), block.data()));
  if (got < block.size()) return DataLoss(path_, " is truncated: its block at ", place.offset, " ends early");
  const uint32_t stored = UnmaskCrc(GetFixed32(block.data() + place.size + 1));
  if (Crc32c(absl::string_view(block).substr(0, place.size + 1)) != stored) {
    return DataLoss(path_, " is damaged: the checksum of its block at ", place.offset, " is wrong");
  }
  const char compression = block[place.size];
  block.resize(place.size);
  if (compression == table_format::kNotCompressed) return block;
  if (compression != table_format::kSnappy) {
    return DataLoss(path_, " is damaged: its block at ", place.offset, " is compressed in an unknown way (",
                    static_cast<int>(compression), ")");
  }
  std::string plain;
  size_t plain_size;
  // Three compressed bytes expand to at most 64; reject larger claims before allocating.
  constexpr size_t kMaxExpansion = 22;
  if (!snappy::GetUncompressedLength(block.data(), block.size(), &plain_size) ||
      plain_size / kMaxExpansion > block.size() || !snappy::Uncompress(block.data(), block.size(), &plain)) {
    return DataLoss(path_, " is damaged: its block at ", place.offset, " cannot be uncompressed");
  }
  return plain;
}

namespace {
Status Unsound(const std::string& path, absl::string_view which) {
  return DataLoss(path, " is damaged: entries of its ", which, " are cut short or out of order");
}
}  // namespace

StatusOr<std::string> Table::Find(absl::string_view key) const {
  Entries places;
  if (!Entries::Parse(index_, &places) || !places.Seek(key)) return Unsound(path_, "index");
  bool sound = true, found = false;
  while (!found && places.Next(&sound)) found = places.key() >= key;
  if (!sound) return Unsound(path_, "index");
  const Status missing = NotFound("no key '", absl::CHexEscape(key), "' in ", path_);
  if (!found) return missing;
  absl::string_view bytes = places.value();
  Place place;
  if (!TakePlace(&bytes, &place)) return Unsound(path_, "index");
  MR_ASSIGN_OR_RETURN(const std::string block, ReadBlock(place));
  Entries entries;
  const std::string which = absl::StrCat("block at ", place.offset);
  if (!Entries::Parse(block, &entries) || !entries.Seek(key)) return Unsound(path_, which);
  while (entries.Next(&sound)) {
    if (entries.key() == key) return std::string(entries.value());
    if (entries.key() > key) return missing;
  }
  return sound ? missing : Unsound(path_, which);
}

Status Table::ForEach(absl::FunctionRef<Status(absl::string_view key, absl::string_view value)> visit) const {
  Entries places;
  if (!Entries::Parse(index_, &places)) return Unsound(path_, "index");
  bool sound = true;
  std::string last;
  uint64_t end = 0;  // of the previous block
  while (places.Next(&sound)) {
    absl::string_view bytes = places.value();
    Place place;
    // Blocks must be in order and must not overlap, so that a small file cannot describe a huge table.
    if (!TakePlace(&bytes, &place) || place.offset < end) return Unsound(path_, "index");
    MR_ASSIGN_OR_RETURN(const std::string block, ReadBlock(place));
    Entries entries;
    const std::string which = absl::StrCat("block at ", place.offset);
    if (!Entries::Parse(block, &entries) || !entries.Next(&sound)) return Unsound(path_, which);
    if (end > 0 && entries.key() <= last) return Unsound(path_, which);
    do {
      MR_RETURN_IF_ERROR(visit(entries.key(), entries.value()));
    } while (entries.Next(&sound));
    if (!sound || entries.key() > places.key()) return Unsound(path_, which);
    last = entries.key();
    end = place.offset + place.size;
  }
  return sound ? absl::OkStatus() : Unsound(path_, "index");
}

}  // namespace millrace
