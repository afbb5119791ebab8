// What travels over a lane: frames.
//
// A frame is a header, a table of the message's segments, the bytes of the small segments, and then those of the large ones that go
// through the socket. A segment may also stay in the sender's memory, where the receiver reads it. The checksum covers all but the large ones.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/net/bytes.h"

namespace millrace::net {

inline constexpr uint64_t kLaneMagic = 0x31656e616c726d00;  // "mrlane1"
inline constexpr uint32_t kLaneVersion = 1;

enum class FrameKind : uint8_t {
  kHello = 1,     // who connects: HelloBody
  kWelcome = 2,   // the answer to it: WelcomeBody
  kReady = 3,     // the answer to that; `argument`: whether the connecting side can read the other's memory
  kCall = 4,      // `argument`: microseconds until the caller gives up, kNoTimeout for never
  kMessage = 5,   // of a call that streams, either way
  kAnswer = 6,    // ends a call
  kError = 7,     // ends a call; `argument`: the code of the status, whose message is the text
  kCancel = 8,    // the caller gives up
  kReleased = 9,  // `argument`: the announcement whose memory has been read
  kCredit = 10,   // `argument`: bytes that have been consumed
  kBye = 11,      // of a server that stops: no more calls; the memory that it announced stays until the other side hangs up
};

// Frames of the other kinds have no segments.
inline bool CarriesMessage(FrameKind kind) { return kind <= FrameKind::kWelcome || (kind >= FrameKind::kCall && kind <= FrameKind::kError); }

inline constexpr uint8_t kFlagStreams = 1;
inline constexpr uint64_t kNoTimeout = ~uint64_t{0};

// As on the wire; machines are little-endian.
struct FrameHeader {
  uint32_t crc = 0;  // of the header with 0 here, the table and the small bytes
  FrameKind kind = FrameKind::kHello;
  uint8_t flags = 0;
  uint16_t method = 0;  // of kMessage to a server: the core that its sender is on, and 1; 0: not said
  uint64_t call = 0;
  uint64_t argument = 0;
  uint64_t announcement = 0;  // not 0: some segments are to be read, and then released
  uint32_t segments = 0;
  uint32_t small_bytes = 0;
  uint64_t bulk_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 48);

struct FrameSegment {
  enum Place : uint64_t { kSmall = 0, kBulk = 1, kRemote = 2 };
  static constexpr int kSizeBits = 62;

  uint64_t place_and_size = 0;
  uint64_t address = 0;  // of kRemote

  uint64_t place() const { return place_and_size >> kSizeBits; }
  uint64_t size() const { return place_and_size & ((uint64_t{1} << kSizeBits) - 1); }
};
static_assert(sizeof(FrameSegment) == 16);

// What a receiver takes. A sender stays below it: what would be more segments goes as one.
struct FrameLimits {
  uint32_t segments = 4096;
  uint32_t small_bytes = uint32_t{32} << 20;
  uint64_t message = uint64_t{1} << 40;
};

// A frame to be sent.
struct OutFrame {
  std::string head;       // header, table, small bytes
  Bytes bulk;             // behind it
  Bytes announced;        // kept until the other side has read it
  FrameHeader header;     // as in `head`
  size_t payload = 0;     // of the message, wherever it is
};

// Pieces from here on arrive in a buffer of their own.
inline constexpr size_t kOwnBuffer = 4096;

// `header` says kind, flags, method, call and argument. Pieces of `read_from` bytes and more are announced under `announcement`; 0: none.
OutFrame MakeFrame(FrameHeader header, Bytes message, size_t read_from, uint64_t announcement);

// A message as it arrived, or where the rest of it is.
struct Received {
  struct Part {
    absl::string_view data;
    RefPtr<const RefCounted> owner;
    // Still there, in the memory of the sender; 0 when `data` is here.
    uint64_t address = 0;
    uint64_t size = 0;
  };
  absl::InlinedVector<Part, 2> parts;
  uint64_t announcement = 0;  // of those that are still there
  size_t size = 0;            // all parts

  // When all parts are here.
  Bytes Take();
};

struct Frame {
  FrameHeader header;
  Received message;
};

}  // namespace millrace::net
