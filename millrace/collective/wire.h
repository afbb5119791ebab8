// The messages between the ranks of a group, as bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/base/status.h"
#include "millrace/collective/operation.h"
#include "millrace/net/bytes.h"

namespace millrace::collective {

enum class MessageKind : uint8_t {
  kData,    // elements; the messages of an operation from one rank to another are numbered from 0
  kReady,   // the receiver of a large operation has started it, so its memory is there
  kDone,    // the receiver of an operation has read all that it gets from the receiver of this message
  kAbort,   // the group has failed; the payload is a status
  kLeave,   // the sender has left the group
  kMemory,  // whether the sender can read the receiver's memory, and how the receiver can read the sender's
  kMail,    // the sender has left messages in the receiver's mailroom
};
inline constexpr int kMessageKinds = 7;
// Whether it belongs to an operation.
inline bool IsOfOperation(MessageKind kind) { return kind <= MessageKind::kDone; }

// A message of a rank to another of its group.
struct Message {
  MessageKind kind = MessageKind::kData;
  // The payload was sent from the memory of the operation, and the sender waits for kDone before it returns that memory
  // to its owner.
  bool borrowed = false;
  uint64_t sequence = 0;                   // of the operation, counted by each rank
  uint32_t index = 0;                      // of kData
  std::optional<OperationSpec> spec = {};  // with kReady and the first kData
  net::Bytes payload = {};
  // If not 0, the payload is in the sender's memory: at this address, or `shared` and this far into its mailroom.
  uint64_t address = 0;
  bool shared = false;
  uint64_t lent_bytes = 0;

  size_t payload_size() const { return address == 0 ? payload.size() : lent_bytes; }
};

// All of the message but the payload, which follows.
std::string EncodeHead(const Message& message);
// INVALID_ARGUMENT says what is wrong.
StatusOr<Message> DecodeMessage(const net::Bytes& bytes);

// Who sends: at the front of every call.
struct Sender {
  std::string group = {};
  uint64_t rank = 0;
  uint64_t size = 0;
  // A number of the sender's group object, so that a restarted rank is not taken for the one that died.
  uint64_t incarnation = 0;
  // Messages travel as calls of their own: there is no stream.
  bool by_calls = false;
};
std::string EncodeSender(const Sender& sender);
[[nodiscard]] bool ReadSender(net::BytesReader* reader, Sender* sender);

// A status as a payload; longer messages are cut.
std::string EncodeStatus(const Status& status);
// UNKNOWN if the bytes are not a status.
Status DecodeStatus(const net::Bytes& bytes);

}  // namespace millrace::collective
