#include "millrace/net/bytes.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "millrace/base/varint.h"

namespace millrace::net {
namespace {

// protobuf counts in int.
constexpr size_t kMaxChunk = std::numeric_limits<int>::max();

class OwnedText : public RefCounted {
 public:
  explicit OwnedText(std::string text) : text(std::move(text)) {}
  const std::string text;
};

}  // namespace

Bytes Bytes::Of(std::string text) {
  Bytes bytes;
  auto owner = MakeRef<OwnedText>(std::move(text));
  const absl::string_view data = owner->text;
  bytes.Append(data, std::move(owner));
  return bytes;
}

void Bytes::Append(absl::string_view data, RefPtr<const RefCounted> owner) {
  if (data.empty()) return;
  size_ += data.size();
  pieces_.push_back({data, std::move(owner)});
}

void Bytes::Append(Bytes other) {
  if (empty()) {
    *this = std::move(other);
    return;
  }
  size_ += other.size_;
  for (Piece& piece : other.pieces_) pieces_.push_back(std::move(piece));
}

std::string Bytes::Flatten() const {
  std::string text;
  text.reserve(size_);
  for (const Piece& piece : pieces_) text.append(piece.data.data(), piece.data.size());
  return text;
}

BytesReader::BytesReader(const Bytes& bytes) : bytes_(&bytes), remaining_(bytes.size()) {}

void BytesReader::NextPiece() {
  if (at_ == bytes_->pieces()[piece_].data.size()) {
    ++piece_;
    at_ = 0;
  }
}

bool BytesReader::Read(void* to, size_t size) {
  if (size > remaining_) return false;
  remaining_ -= size;
  char* out = static_cast<char*>(to);
  while (size > 0) {
    const absl::string_view data = bytes_->pieces()[piece_].data.substr(at_, size);
    std::memcpy(out, data.data(), data.size());
    out += data.size();
    size -= data.size();
    at_ += data.size();
    NextPiece();
  }
  return true;
}

bool BytesReader::Skip(size_t size) {
  if (size > remaining_) return false;
  remaining_ -= size;
  while (size > 0) {
    const size_t step = std::min(size, bytes_->pieces()[piece_].data.size() - at_);
    size -= step;
    at_ += step;
    NextPiece();
  }
  return true;
}

bool BytesReader::ReadVarint(uint64_t* value) {
  const auto next = [this]() -> int {
    if (remaining_ == 0) return -1;
    const int byte = static_cast<unsigned char>(bytes_->pieces()[piece_].data[at_]);
    ++at_;
    --remaining_;
    NextPiece();
    return byte;
  };
  return DecodeVarint<ExcessBits::kDrop>(next, value);
}

bool BytesReader::ReadString(size_t size, std::string* text) {
  // The size is checked against the remaining bytes before memory is allocated.
  if (size > remaining_) return false;
  text->resize(size);
  return Read(text->data(), size);
}

bool BytesReader::ReadBytes(size_t size, Bytes* bytes) {
  if (size > remaining_) return false;
  remaining_ -= size;
  *bytes = Bytes();
  while (size > 0) {
    const Bytes::Piece& piece = bytes_->pieces()[piece_];
    const absl::string_view data = piece.data.substr(at_, size);
    bytes->Append(data, piece.owner);
    size -= data.size();
    at_ += data.size();
    NextPiece();
  }
  return true;
}

bool BytesInputStream::Next(const void** data, int* size) {
  if (piece_ == bytes_.pieces().size()) return false;
  const absl::string_view piece = bytes_.pieces()[piece_].data;
  const absl::string_view rest = piece.substr(at_, kMaxChunk);
  *data = rest.data();
  *size = static_cast<int>(rest.size());
  count_ += rest.size();
  at_ += rest.size();
  if (at_ == piece.size()) {
    ++piece_;
    at_ = 0;
  }
  return true;
}

void BytesInputStream::BackUp(int count) {
  count_ -= count;
  // The bytes that are backed up came from the last Next, so they are within one piece.
  if (at_ == 0 && count > 0) {
    --piece_;
    at_ = bytes_.pieces()[piece_].data.size();
  }
  at_ -= count;
}

bool BytesInputStream::Skip(int count) {
  while (count > 0) {
    const void* data;
    int size;
    if (!Next(&data, &size)) return false;
    if (size > count) BackUp(size - count);
    count -= std::min(size, count);
  }
  return true;
}

Bytes Serialize(const google::protobuf::MessageLite& message) {
  std::string text;
  message.SerializePartialToString(&text);
  return Bytes::Of(std::move(text));
}

Status Parse(const Bytes& bytes, google::protobuf::MessageLite* message) {
  bool parsed = false;
  if (bytes.size() <= kMaxChunk) {
    if (bytes.pieces().size() <= 1) {
      const absl::string_view data = bytes.empty() ? absl::string_view() : bytes.pieces()[0].data;
      parsed = message->ParseFromArray(data.data(), static_cast<int>(data.size()));
    } else {
      BytesInputStream stream(bytes);
      parsed = message->ParseFromZeroCopyStream(&stream);
    }
  }
  if (parsed) return absl::OkStatus();
  return InvalidArgument(bytes.size(), " bytes are not a ", message->GetTypeName());
}

}  // namespace millrace::net
