#include "millrace/net/lane/hello.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

namespace millrace::net {
namespace {

template <typename Body>
StatusOr<Body> ParseBody(Frame frame, FrameKind kind) {
  static_assert(std::is_trivially_copyable_v<Body>);
  Body body;
  const std::string text = frame.message.announcement == 0 ? frame.message.Take().Flatten() : "";
  if (frame.header.kind != kind || text.size() != sizeof(body)) {
    return InvalidArgument("a frame of kind ", static_cast<int>(frame.header.kind), " and ", text.size(),
                           " bytes instead of a handshake");
  }
  std::memcpy(&body, text.data(), sizeof(body));
  if (body.magic != kLaneMagic) return InvalidArgument("the handshake is not that of a step lane");
  if (body.version != kLaneVersion) {
    return InvalidArgument("a handshake of version ", body.version, " of the step lane; this is version ",
                           kLaneVersion);
  }
  if (body.window == 0) return InvalidArgument("a handshake with a window of 0 bytes");
  return body;
}

}  // namespace

void FillWithRandom(char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = getrandom(to, size, 0);
    MR_CHECK(got > 0 || errno == EINTR);
    if (got <= 0) continue;
    to += got;
    size -= static_cast<size_t>(got);
  }
}

StatusOr<HelloBody> ParseHello(Frame frame) { return ParseBody<HelloBody>(std::move(frame), FrameKind::kHello); }
StatusOr<WelcomeBody> ParseWelcome(Frame frame) {
  return ParseBody<WelcomeBody>(std::move(frame), FrameKind::kWelcome);
}

}  // namespace millrace::net
