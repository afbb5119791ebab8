#include "millrace/collective/wire.h"

#include "millrace/base/varint.h"

namespace millrace::collective {
namespace {

constexpr uint8_t kFlagBorrowed = 1, kFlagSpec = 2, kFlagLent = 4, kFlagShared = 8, kKnownFlags = 15;
// More than any memory holds.
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr size_t kLongestStatus = 16 << 10;
constexpr size_t kLongestGroup = 1024;

}  // namespace

std::string EncodeHead(const Message& message) {
  std::string head;
  head.push_back(static_cast<char>(message.kind));
  head.push_back(static_cast<char>((message.borrowed ? kFlagBorrowed : 0) | (message.spec.has_value() ? kFlagSpec : 0) |
                                   (message.address != 0 ? kFlagLent : 0) | (message.shared ? kFlagShared : 0)));
  PutVarint(&head, message.sequence);
  PutVarint(&head, message.index);
  if (message.spec.has_value()) AppendSpec(*message.spec, &head);
  if (message.address != 0) {
    PutVarint(&head, message.address);
    PutVarint(&head, message.lent_bytes);
  }
  return head;
}

StatusOr<Message> DecodeMessage(const net::Bytes& bytes) {
  net::BytesReader reader(bytes);
  uint8_t kind = 0, flags = 0;
  uint64_t index = 0;
  Message message;
  if (!reader.Read(&kind, 1) || kind >= kMessageKinds || !reader.Read(&flags, 1) || (flags & ~kKnownFlags) != 0 ||
      !reader.ReadVarint(&message.sequence) || !reader.ReadVarint(&index) || index > UINT32_MAX)
    return InvalidArgument("a collective message of ", bytes.size(), " bytes has no valid head");
  message.kind = static_cast<MessageKind>(kind);
  message.borrowed = (flags & kFlagBorrowed) != 0;
  message.shared = (flags & kFlagShared) != 0;
  message.index = static_cast<uint32_t>(index);
  if ((flags & kFlagSpec) != 0 && !ReadSpec(&reader, &message.spec.emplace()))
    return InvalidArgument("a collective message of ", bytes.size(), " bytes has no valid description");
  if ((flags & kFlagLent) != 0) {
    if (message.kind != MessageKind::kData || !reader.ReadVarint(&message.address) || message.address == 0 ||
        !reader.ReadVarint(&message.lent_bytes) || message.lent_bytes > kMostBytes || reader.remaining() > 0)
      return InvalidArgument("a collective message of ", bytes.size(), " bytes has no valid address");
  } else if (message.shared) {
    return InvalidArgument("a collective message of ", bytes.size(), " bytes is shared and has no address");
  }
  const bool whole = reader.ReadBytes(reader.remaining(), &message.payload);
  MR_CHECK(whole);
  return message;
}

std::string EncodeSender(const Sender& sender) {
  std::string text;
  PutVarint(&text, sender.group.size());
  text.append(sender.group);
  PutVarint(&text, sender.rank);
  PutVarint(&text, sender.size);
  PutVarint(&text, sender.incarnation);
  text.push_back(sender.by_calls ? 1 : 0);
  return text;
}

bool ReadSender(net::BytesReader* reader, Sender* sender) {
  uint64_t length = 0;
  uint8_t by_calls = 0;
  if (!reader->ReadVarint(&length) || length > kLongestGroup || !reader->ReadString(length, &sender->group) ||
      !reader->ReadVarint(&sender->rank) || !reader->ReadVarint(&sender->size) ||
      !reader->ReadVarint(&sender->incarnation) || !reader->Read(&by_calls, 1) || by_calls > 1)
    return false;
  sender->by_calls = by_calls == 1;
  return true;
}

std::string EncodeStatus(const Status& status) {
  std::string text;
  PutVarint(&text, static_cast<uint64_t>(status.code()));
  absl::StrAppend(&text, absl::string_view(status.message()).substr(0, kLongestStatus));
  return text;
}

Status DecodeStatus(const net::Bytes& bytes) {
  net::BytesReader reader(bytes);
  uint64_t code = 0;
  std::string text;
  if (!reader.ReadVarint(&code) || code == 0 || code > 16 || reader.remaining() > kLongestStatus ||
      !reader.ReadString(reader.remaining(), &text))
    return absl::UnknownError("another rank failed, and its reason cannot be read");
  return Status(static_cast<absl::StatusCode>(code), text);
}

}  // namespace millrace::collective
