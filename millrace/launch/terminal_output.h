// What the launcher prints: lines of tasks to stdout and stderr, and on a terminal a block of status lines below them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace::launch {

// The text that puts `lines` in place of a block of `drawn` lines above the cursor, after `output`. Pure.
std::string RedrawBlock(int drawn, absl::string_view output, const std::vector<std::string>& block);
// How many lines of a terminal that is `columns` wide the block takes.
int BlockHeight(const std::vector<std::string>& block, int columns);
// Cuts at `columns` characters of UTF-8. Colours do not count.
std::string CutToWidth(absl::string_view line, int columns);

// Writes when the descriptors take it, so that a reader that has stopped does not stop the launcher. One thread.
class TerminalOutput {
 public:
  // `live`: `out` is a terminal and has a block. What goes to `error` goes there too when that is a terminal.
  TerminalOutput(int out, int error, bool live);

  // In lines. With a block it is shown by the next Present.
  void Out(absl::string_view text) { Put(out_, text); }
  void Error(absl::string_view text) { Put(error_, text); }
  // The lines at the bottom, from the next Present on.
  void SetBlock(std::vector<std::string> block) { block_ = std::move(block); }
  // There is something to present.
  bool stale() const { return live_ && (!gathered_.empty() || block_ != drawn_); }
  void Present();
  // Leaves the block where it is: what follows is below it.
  void EndBlock();
  // After the terminal has changed its size.
  void SetColumns(int columns) { columns_ = columns; }

  // The descriptor to poll for writing; -1 when there is nothing to write.
  int waiting_fd() const;
  // Writes what can be written without waiting. Call when waiting_fd() is ready.
  void Write();
  // Writes all, waiting at most `seconds` for readers.
  void Drain(double seconds);
  // So much is held that tasks should be read no further.
  bool full() const { return held_ + gathered_.size() > kMaxHeld; }

 private:
  static constexpr size_t kMaxHeld = 1 << 20;
  struct Chunk {
    int fd;
    std::string text;
    size_t written = 0;
  };
  void Put(int fd, absl::string_view text);
  void Append(int fd, absl::string_view text);

  const int out_;
  int error_;
  const bool live_;
  int columns_ = 80;
  std::vector<std::string> block_, drawn_;
  std::string gathered_;
  std::deque<Chunk> chunks_;
  size_t held_ = 0;
};

}  // namespace millrace::launch
