// What a launcher and a keeper say to each other, over two pipes or an ssh connection.
//
// A frame is its kind (one byte), the size of its body (four bytes, little-endian) and the body. A body holds numbers and strings in the order that
// its struct tells. The keeper begins with kGreeting; what stands before it (an ssh server's banner, a chatty shell) is passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::launch {

inline constexpr absl::string_view kGreeting = "\nmillrace keeper 1\n";
inline constexpr size_t kMaxFrameBody = 1 << 20;
inline constexpr size_t kMaxNoise = 64 << 10;  // before the greeting

enum class FrameKind : uint8_t {
  // To the keeper.
  kStart = 1,   // StartFrame
  kSignal = 2,  // a number: to the program's process group
  kKill = 3,    // SIGKILL to all that came from the program
  kPing = 4,    // the launcher is there
  // From the keeper.
  kHello = 16,       // HelloFrame
  kStarted = 17,     // a number: the program's pid
  kNotStarted = 18,  // a number: errno; a string: what failed
  kStdout = 19,      // bytes
  kStderr = 20,      // bytes
  kProgress = 21,    // one line (train/progress.h)
  kExited = 22,      // two numbers: code, signal
  kSuspended = 23,   // a number: the signal that stopped it, 0 when it goes on
  kGone = 24,        // nothing is left of the program
};

struct Frame {
  FrameKind kind;
  std::string body;
};

struct StartFrame {
  std::vector<std::string> arguments;    // the program first
  std::vector<std::string> environment;  // "NAME=VALUE", over what the keeper has
  // What it may run on; empty: wherever the keeper may. Only sent where there are any, since older keepers do not know it.
  std::vector<int> cores = {};
  std::string Encode() const;
  static StatusOr<StartFrame> Decode(absl::string_view body);
};

struct HelloFrame {
  int64_t pid = 0;   // of the keeper
  int64_t port = 0;  // free, and held until the program starts
  // What there is for a CoreClaim (core_shares.h). Older keepers do not tell; then they are empty.
  std::string machine = {};
  std::vector<int> cores = {};
  std::string Encode() const;
  static StatusOr<HelloFrame> Decode(absl::string_view body);
};

// Bodies of numbers alone, and of numbers with a text behind them.
std::string EncodeNumbers(std::vector<int64_t> numbers, absl::string_view text = "");
struct NumbersAndText {
  std::vector<int64_t> numbers;
  std::string text;
};
StatusOr<NumbersAndText> DecodeNumbers(absl::string_view body, int count);

// The bytes of a frame. The body is at most kMaxFrameBody.
std::string EncodeFrame(FrameKind kind, absl::string_view body);

// Bytes in, frames out. Holds at most one frame and what was added since.
class FrameReader {
 public:
  // With `greeting`, frames begin after kGreeting.
  explicit FrameReader(bool greeting) : greeted_(!greeting) {}

  void Add(absl::string_view bytes) { absl::StrAppend(&buffer_, bytes); }
  // The next whole frame, none when more bytes are needed, or INVALID_ARGUMENT: the other side is no keeper or launcher, and nothing more can be
  // read.
  StatusOr<std::optional<Frame>> Next();
  bool greeted() const { return greeted_; }
  // What came before the greeting.
  const std::string& noise() const { return noise_; }

 private:
  bool greeted_;
  std::string noise_;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace millrace::launch
