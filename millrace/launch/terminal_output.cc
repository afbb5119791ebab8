#include "millrace/launch/terminal_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"

namespace millrace::launch {
namespace {

// A pipe that is ready for writing takes this much without blocking.
constexpr size_t kTerminalPiece = 4096;

// The numbers of bytes and of visible characters of `line`, up to a limit of visible characters.
std::pair<size_t, int> Measure(absl::string_view line, int columns) {
  int width = 0;
  size_t at = 0;
  while (at < line.size()) {
    if (line[at] == '\033') {
      while (at < line.size() && line[at] != 'm') ++at;
      at = std::min(at + 1, line.size());
      continue;
    }
    if (width == columns) break;
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
    ++width;
  }
  return {at, width};
}

}  // namespace

std::string CutToWidth(absl::string_view line, int columns) {
  const size_t end = Measure(line, std::max(1, columns)).first;
  std::string cut(line.substr(0, end));
  if (end < line.size() && cut.find('\033') != std::string::npos) cut += "\033[0m";
  return cut;
}

int BlockHeight(const std::vector<std::string>& block, int columns) {
  int height = 0;
  for (const std::string& line : block) {
    const int width = Measure(line, 1 << 20).second;
    height += std::max(1, (width + std::max(1, columns) - 1) / std::max(1, columns));
  }
  return height;
}

std::string RedrawBlock(int drawn, absl::string_view output, const std::vector<std::string>& block) {
  std::string text;
  // Moves the cursor to the block's first line and clears the screen from there.
  if (drawn > 0) absl::StrAppend(&text, "\r\033[", drawn, "A\033[J");
  absl::StrAppend(&text, output);
  for (const std::string& line : block) absl::StrAppend(&text, line, "\n");
  return text;
}

TerminalOutput::TerminalOutput(int out, int error, bool live) : out_(out), error_(error), live_(live) {
  if (live && isatty(error) != 0) error_ = out;
}

void TerminalOutput::Append(int fd, absl::string_view text) {
  if (text.empty()) return;
  held_ += text.size();
  if (!chunks_.empty() && chunks_.back().fd == fd && chunks_.back().text.size() < kMaxHeld) {
    absl::StrAppend(&chunks_.back().text, text);
  } else {
    chunks_.push_back({fd, std::string(text)});
  }
}

void TerminalOutput::Put(int fd, absl::string_view text) {
  // Reached only if tasks are being ended and nobody reads the output.
  if (held_ + gathered_.size() > 2 * kMaxHeld) return;
  if (live_ && fd == out_) {
    absl::StrAppend(&gathered_, text);
  } else {
    Append(fd, text);
  }
}

void TerminalOutput::Present() {
  if (!stale()) return;
  Append(out_, RedrawBlock(BlockHeight(drawn_, columns_), gathered_, block_));
  gathered_.clear();
  drawn_ = block_;
}

void TerminalOutput::EndBlock() {
  Present();
  block_.clear();
  drawn_.clear();
}

int TerminalOutput::waiting_fd() const { return chunks_.empty() ? -1 : chunks_.front().fd; }

void TerminalOutput::Write() {
  while (!chunks_.empty()) {
    Chunk& chunk = chunks_.front();
    pollfd ready = {chunk.fd, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) return;
    const size_t left = chunk.text.size() - chunk.written;
    const ssize_t size = write(chunk.fd, chunk.text.data() + chunk.written, std::min(left, kTerminalPiece));
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    // After an error nobody will read the output: drop it and let the job continue.
    const size_t done = size < 0 ? left : static_cast<size_t>(size);
    held_ -= done;
    chunk.written += done;
    if (done == left) chunks_.pop_front();
  }
}

void TerminalOutput::Drain(double seconds) {
  const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(seconds);
  Present();
  Write();
  while (!chunks_.empty() && Clock::Real()->Now() < deadline) {
    pollfd ready = {chunks_.front().fd, POLLOUT, 0};
    poll(&ready, 1, 100);
    Write();
  }
}

}  // namespace millrace::launch
