#include "millrace/launch/keeper_frame.h"

#include <algorithm>

namespace millrace::launch {
namespace {

constexpr size_t kHeader = 5;
constexpr size_t kMaxStrings = 100000;
constexpr int64_t kMaxCores = 1 << 20;

void PutNumber(int64_t number, std::string* body) {
  for (int i = 0; i < 8; ++i) body->push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * i)));
}

void PutString(absl::string_view text, std::string* body) {
  PutNumber(static_cast<int64_t>(text.size()), body);
  absl::StrAppend(body, text);
}

// Takes a value from the front; false if the body is too short.
bool TakeNumber(absl::string_view* body, int64_t* number) {
  if (body->size() < 8) return false;
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>((*body)[i])) << (8 * i);
  *number = static_cast<int64_t>(value);
  body->remove_prefix(8);
  return true;
}

bool TakeString(absl::string_view* body, std::string* text) {
  int64_t size;
  if (!TakeNumber(body, &size) || size < 0 || static_cast<uint64_t>(size) > body->size()) return false;
  *text = std::string(body->substr(0, size));
  body->remove_prefix(size);
  return true;
}

bool TakeStrings(absl::string_view* body, std::vector<std::string>* strings) {
  int64_t count;
  // Each entry takes at least eight bytes.
  if (!TakeNumber(body, &count) || count < 0 || static_cast<uint64_t>(count) > std::min(body->size() / 8, kMaxStrings))
    return false;
  strings->resize(count);
  for (std::string& text : *strings) {
    if (!TakeString(body, &text)) return false;
  }
  return true;
}

void PutCores(const std::vector<int>& cores, std::string* body) {
  PutNumber(static_cast<int64_t>(cores.size()), body);
  for (const int core : cores) PutNumber(core, body);
}

bool TakeCores(absl::string_view* body, std::vector<int>* cores) {
  int64_t count;
  if (!TakeNumber(body, &count) || count < 0 || static_cast<uint64_t>(count) > body->size() / 8) return false;
  cores->resize(count);
  for (int& core : *cores) {
    int64_t number;
    if (!TakeNumber(body, &number) || number < 0 || number >= kMaxCores) return false;
    core = static_cast<int>(number);
  }
  return true;
}

bool IsKind(uint8_t kind) {
  return (kind >= static_cast<uint8_t>(KeeperFrameKind::kStart) &&
          kind <= static_cast<uint8_t>(KeeperFrameKind::kFinish)) ||
         (kind >= static_cast<uint8_t>(KeeperFrameKind::kHello) &&
          kind <= static_cast<uint8_t>(KeeperFrameKind::kInterrupted));
}

}  // namespace

std::string EncodeCredentials(const TlsCredentials& credentials) {
  std::string body;
  for (const std::string* text : {&credentials.certificate, &credentials.key, &credentials.authority})
    PutString(*text, &body);
  return body;
}

StatusOr<TlsCredentials> DecodeCredentials(absl::string_view body) {
  TlsCredentials credentials;
  for (std::string* text : {&credentials.certificate, &credentials.key, &credentials.authority}) {
    if (!TakeString(&body, text)) return InvalidArgument("malformed credentials");
  }
  if (!body.empty()) return InvalidArgument("something follows the credentials");
  return credentials;
}

std::string StartFrame::Encode() const {
  std::string body;
  for (const auto* strings : {&arguments, &environment}) {
    PutNumber(static_cast<int64_t>(strings->size()), &body);
    for (const std::string& text : *strings) PutString(text, &body);
  }
  if (!cores.empty() || credentials.has_value()) PutCores(cores, &body);
  if (credentials.has_value()) absl::StrAppend(&body, EncodeCredentials(*credentials));
  return body;
}

StatusOr<StartFrame> StartFrame::Decode(absl::string_view body) {
  StartFrame start;
  if (!TakeStrings(&body, &start.arguments) || !TakeStrings(&body, &start.environment) ||
      (!body.empty() && !TakeCores(&body, &start.cores)) || start.arguments.empty()) {
    return InvalidArgument("a malformed start frame");
  }
  if (!body.empty()) {
    MR_ASSIGN_OR_RETURN(start.credentials, DecodeCredentials(body));
  }
  return start;
}

std::string HelloFrame::Encode() const {
  std::string body = EncodeNumbers({pid, port});
  PutString(machine, &body);
  PutCores(cores, &body);
  PutString(credential_folder, &body);
  return body;
}

StatusOr<HelloFrame> HelloFrame::Decode(absl::string_view body) {
  MR_ASSIGN_OR_RETURN(const NumbersAndText read, DecodeNumbers(body, 2));
  if (read.numbers[1] < 1 || read.numbers[1] > 65535)
    return InvalidArgument("a hello frame with port ", read.numbers[1]);
  HelloFrame hello = {.pid = read.numbers[0], .port = read.numbers[1]};
  absl::string_view rest = read.text;
  if (!rest.empty() && (!TakeString(&rest, &hello.machine) || !TakeCores(&rest, &hello.cores)))
    return InvalidArgument("a malformed hello frame");
  if (!rest.empty() && (!TakeString(&rest, &hello.credential_folder) || !rest.empty()))
    return InvalidArgument("a malformed hello frame");
  return hello;
}

std::string EncodeNumbers(std::vector<int64_t> numbers, absl::string_view text) {
  std::string body;
  for (const int64_t number : numbers) PutNumber(number, &body);
  absl::StrAppend(&body, text);
  return body;
}

StatusOr<NumbersAndText> DecodeNumbers(absl::string_view body, int count) {
  NumbersAndText read;
  read.numbers.resize(count);
  for (int64_t& number : read.numbers) {
    if (!TakeNumber(&body, &number)) return InvalidArgument("a frame too short for ", count, " numbers");
  }
  read.text = std::string(body);
  return read;
}

std::string EncodeKeeperFrame(KeeperFrameKind kind, absl::string_view body) {
  MR_CHECK(body.size() <= kMaxFrameBody);
  std::string bytes;
  bytes.reserve(kHeader + body.size());
  bytes.push_back(static_cast<char>(kind));
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(body.size() >> (8 * i)));
  absl::StrAppend(&bytes, body);
  return bytes;
}

StatusOr<std::optional<KeeperFrame>> KeeperFrameReader::Next() {
  if (!greeted_) {
    const size_t found = absl::string_view(buffer_).find(kGreeting);
    // The greeting's leading newline may be missing at the start of the stream.
    const bool at_start = found == absl::string_view::npos &&
                          absl::string_view(buffer_).substr(0, kGreeting.size() - 1) == kGreeting.substr(1);
    if (found == absl::string_view::npos && !at_start) {
      if (buffer_.size() <= kMaxNoise) return std::nullopt;
      noise_ = buffer_.substr(0, kMaxNoise);
      return InvalidArgument("no keeper answered: got ", kMaxNoise, " bytes of other output");
    }
    noise_ = buffer_.substr(0, at_start ? 0 : found);
    at_ = at_start ? kGreeting.size() - 1 : found + kGreeting.size();
    greeted_ = true;
  }
  const absl::string_view rest = absl::string_view(buffer_).substr(at_);
  if (rest.size() >= kHeader) {
    const uint8_t kind = static_cast<uint8_t>(rest[0]);
    size_t size = 0;
    for (int i = 0; i < 4; ++i) size |= static_cast<size_t>(static_cast<unsigned char>(rest[1 + i])) << (8 * i);
    if (!IsKind(kind) || size > kMaxFrameBody) {
      return InvalidArgument("not a frame: kind ", static_cast<int>(kind), " with ", size, " bytes");
    }
    if (rest.size() >= kHeader + size) {
      KeeperFrame frame = {static_cast<KeeperFrameKind>(kind), std::string(rest.substr(kHeader, size))};
      at_ += kHeader + size;
      return frame;
    }
  }
  // Moves only the incomplete rest of a frame.
  buffer_.erase(0, at_);
  at_ = 0;
  return std::nullopt;
}

}  // namespace millrace::launch
