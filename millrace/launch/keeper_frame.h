// The messages between a launcher and a keeper, over two pipes or an ssh connection.
//
// A frame is its kind (one byte), the size of its body (four bytes, little-endian) and the body. A body holds numbers
// and strings in the order of its struct. The keeper starts with kGreeting; anything before that (an ssh server's
// banner, output of the login shell) is skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"

namespace millrace::launch {

inline constexpr absl::string_view kGreeting = "\nmillrace keeper 1\n";
inline constexpr size_t kMaxFrameBody = 1 << 20;
inline constexpr size_t kMaxNoise = 64 << 10;  // bytes accepted before the greeting

enum class KeeperFrameKind : uint8_t {
  // To the keeper.
  kStart = 1,   // StartFrame
  kSignal = 2,  // a number: the signal to send to the program's process group
  kKill = 3,    // send SIGKILL to the program and all its descendants
  kPing = 4,    // the launcher is alive
  kFinish = 5,  // a number: the exit code for the keeper's process; the job is over
  // From the keeper.
  kHello = 16,        // HelloFrame
  kStarted = 17,      // a number: the program's pid
  kNotStarted = 18,   // a number: errno; a string: what failed
  kStdout = 19,       // bytes
  kStderr = 20,       // bytes
  kProgress = 21,     // one line (train/progress.h)
  kExited = 22,       // two numbers: code, signal
  kSuspended = 23,    // a number: the signal that stopped it, 0 when it continues
  kGone = 24,         // neither the program nor a descendant of it is left
  kInterrupted = 25,  // a number: the signal with which somebody wants the job to end
};

struct KeeperFrame {
  KeeperFrameKind kind;
  std::string body;
};

struct StartFrame {
  std::vector<std::string> arguments;    // the program first
  std::vector<std::string> environment;  // "NAME=VALUE", added to the keeper's environment
  // The cores it may run on; if empty, those of the keeper. Sent only if not empty, since older keepers do not know
  // this field.
  std::vector<int> cores = {};
  // For the program (CredentialFolder); also sent only if there are some.
  std::optional<TlsCredentials> credentials = {};
  std::string Encode() const;
  static StatusOr<StartFrame> Decode(absl::string_view body);
};

struct HelloFrame {
  int64_t pid = 0;   // the keeper's
  int64_t port = 0;  // a free port, reserved until the program starts
  // For a CoreClaim (core_shares.h). Empty from older keepers, which do not send them.
  std::string machine = {};
  std::vector<int> cores = {};
  // Where it will write the program's credentials. A launcher on the same machine removes it if the keeper and its
  // guard are killed.
  std::string credential_folder = {};
  std::string Encode() const;
  static StatusOr<HelloFrame> Decode(absl::string_view body);
};

std::string EncodeCredentials(const TlsCredentials& credentials);
StatusOr<TlsCredentials> DecodeCredentials(absl::string_view body);

// Bodies that consist of numbers, optionally followed by a text.
std::string EncodeNumbers(std::vector<int64_t> numbers, absl::string_view text = "");
struct NumbersAndText {
  std::vector<int64_t> numbers;
  std::string text;
};
StatusOr<NumbersAndText> DecodeNumbers(absl::string_view body, int count);

// Encodes a frame. The body must not exceed kMaxFrameBody.
std::string EncodeKeeperFrame(KeeperFrameKind kind, absl::string_view body);

// Splits a byte stream into frames. Buffers at most one frame and what was added since.
class KeeperFrameReader {
 public:
  // If `greeting`, frames are expected after kGreeting.
  explicit KeeperFrameReader(bool greeting) : greeted_(!greeting) {}

  void Add(absl::string_view bytes) { absl::StrAppend(&buffer_, bytes); }
  // The next complete frame, or nullopt if more bytes are needed. INVALID_ARGUMENT if the other side is not a keeper or
  // launcher; the stream is unusable then.
  StatusOr<std::optional<KeeperFrame>> Next();
  // The bytes before the greeting.
  const std::string& noise() const { return noise_; }

 private:
  bool greeted_;
  std::string noise_;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace millrace::launch
