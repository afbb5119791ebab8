// The handshake of a new connection.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/cross_memory.h"
#include "millrace/net/lane/frame.h"

namespace millrace::net {

using LaneSecret = std::array<char, 32>;

// Fills memory with unpredictable bytes, for secrets and probes.
void FillWithRandom(char* to, size_t size);

// Sent by the connecting side.
struct HelloBody {
  uint64_t magic = kLaneMagic;
  uint32_t version = kLaneVersion;
  uint32_t reads_memory = 0;  // whether it wants to read the other's memory
  LaneSecret secret{};
  uint64_t window = 0;
  uint64_t probe_address = 0;  // where the probe is in its memory
  MemoryProbe probe{};
};

// Sent by the listening side.
struct WelcomeBody {
  uint64_t magic = kLaneMagic;
  uint32_t version = kLaneVersion;
  uint32_t reads_memory = 0;  // whether it can read the other's memory
  uint64_t window = 0;
  uint64_t probe_address = 0;
  MemoryProbe probe{};
};

// Parses the body of a frame; INVALID_ARGUMENT if it is malformed or of another version.
StatusOr<HelloBody> ParseHello(Frame frame);
StatusOr<WelcomeBody> ParseWelcome(Frame frame);

template <typename Body>
Bytes BodyBytes(const Body& body) {
  return Bytes::Of(std::string(reinterpret_cast<const char*>(&body), sizeof(body)));
}

}  // namespace millrace::net
