// What two sides of a new connection say to each other.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/cross_memory.h"
#include "millrace/net/lane/frame.h"

namespace millrace::net {

using LaneSecret = std::array<char, 32>;

// For secrets and probes: what nobody can guess.
void FillWithRandom(char* to, size_t size);

// Of the side that connects.
struct HelloBody {
  uint64_t magic = kLaneMagic;
  uint32_t version = kLaneVersion;
  uint32_t reads_memory = 0;  // whether it wants to
  LaneSecret secret{};
  uint64_t window = 0;
  uint64_t probe_address = 0;  // where the probe lies in its memory
  MemoryProbe probe{};
};

// Of the side that listens.
struct WelcomeBody {
  uint64_t magic = kLaneMagic;
  uint32_t version = kLaneVersion;
  uint32_t reads_memory = 0;  // whether it can read the other's
  uint64_t window = 0;
  uint64_t probe_address = 0;
  MemoryProbe probe{};
};

// The text of a frame, as a body; INVALID_ARGUMENT when it is none of this version.
StatusOr<HelloBody> ParseHello(Frame frame);
StatusOr<WelcomeBody> ParseWelcome(Frame frame);

template <typename Body>
Bytes BodyBytes(const Body& body) {
  return Bytes::Of(std::string(reinterpret_cast<const char*>(&body), sizeof(body)));
}

}  // namespace millrace::net
