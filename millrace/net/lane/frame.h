// Frames, the messages of the lane's wire protocol.
//
// A frame is a header, a table of the message's segments, the bytes of the small segments, and then those of the large
// segments that go through the socket. A segment may also stay in the sender's memory, from where the receiver reads
// it. The checksum covers everything except large segments.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

inline constexpr uint64_t kLaneMagic = 0x31656e616c726d00;  // "mrlane1"
inline constexpr uint32_t kLaneVersion = 1;

enum class FrameKind : uint8_t {
  kHello = 1,     // from the connecting side: HelloBody
  kWelcome = 2,   // the answer to kHello: WelcomeBody
  kReady = 3,     // the answer to kWelcome; `argument`: whether the connecting side can read the other's memory
  kCall = 4,      // `argument`: microseconds until the caller gives up, kNoTimeout for never
  kMessage = 5,   // of a streaming call, in either direction
  kAnswer = 6,    // ends a call
  kError = 7,     // ends a call; `argument`: the code of the status, whose message is the text
  kCancel = 8,    // the caller gives up
  kReleased = 9,  // `argument`: the announcement whose memory has been read
  kCredit = 10,   // `argument`: bytes that have been consumed
  kBye = 11,      // from a stopping server: no more calls; memory it announced stays valid until the other side closes
};

// Frames of the other kinds have no segments.
inline bool CarriesMessage(FrameKind kind) {
  return kind <= FrameKind::kWelcome || (kind >= FrameKind::kCall && kind <= FrameKind::kError);
}

inline constexpr uint8_t kFlagStreams = 1;
inline constexpr uint64_t kNoTimeout = ~uint64_t{0};

// The layout on the wire; both machines must be little-endian.
struct FrameHeader {
  uint32_t crc = 0;  // of the header (with 0 here), the table and the small bytes
  FrameKind kind = FrameKind::kHello;
  uint8_t flags = 0;
  uint16_t method = 0;  // in a kMessage to a server: 1 + the core that the sender runs on; 0: unknown
  uint64_t call = 0;
  uint64_t argument = 0;
  uint64_t announcement = 0;  // not 0: some segments must be read from the sender's memory, and then released
  uint32_t segments = 0;
  uint32_t small_bytes = 0;
  uint64_t bulk_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 48);

struct FrameSegment {
  enum Place : uint64_t { kSmall = 0, kBulk = 1, kRemote = 2 };
  static constexpr int kSizeBits = 62;

  uint64_t place_and_size = 0;
  uint64_t address = 0;  // for kRemote

  uint64_t place() const { return place_and_size >> kSizeBits; }
  uint64_t size() const { return place_and_size & ((uint64_t{1} << kSizeBits) - 1); }
};
static_assert(sizeof(FrameSegment) == 16);

// What a receiver accepts. A sender stays below it by merging segments.
struct FrameLimits {
  uint32_t segments = 4096;
  uint32_t small_bytes = uint32_t{32} << 20;
  uint64_t message = uint64_t{1} << 40;
};

// A frame to be sent.
struct OutFrame {
  std::string head;    // header, table, small bytes
  Bytes bulk;          // sent after `head`
  Bytes announced;     // kept alive until the other side has read it
  FrameHeader header;  // a copy of that in `head`
  size_t payload = 0;  // the size of the message, wherever its segments are
};

// Pieces of at least this size arrive in a buffer of their own.
inline constexpr size_t kOwnBuffer = 4096;

// `header` gives kind, flags, method, call and argument. If `announcement` is not 0, pieces of at least `read_from`
// bytes are announced under it instead of sent.
OutFrame MakeFrame(FrameHeader header, Bytes message, size_t read_from, uint64_t announcement);

// A received message, some parts of which may still be in the sender's memory.
struct Received {
  struct Part {
    absl::string_view data;
    RefPtr<const RefCounted> owner;
    // The address in the sender's memory; 0 if the part is in `data`.
    uint64_t address = 0;
    uint64_t size = 0;
  };
  absl::InlinedVector<Part, 2> parts;
  uint64_t announcement = 0;  // of the parts that are still in the sender's memory
  size_t size = 0;            // of all parts

  // Call it when all parts are local.
  Bytes Take();
};

struct Frame {
  FrameHeader header;
  Received message;
};

}  // namespace millrace::net
