// The launcher's output: lines of tasks on stdout and stderr, and on a terminal a block of status lines below them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace::launch {

// The text that replaces a block of `drawn` lines above the cursor by `output` followed by `block`. A pure function.
std::string RedrawBlock(int drawn, absl::string_view output, const std::vector<std::string>& block);
// How many lines the block takes on a terminal of that width.
int BlockHeight(const std::vector<std::string>& block, int columns);
// Truncates to `columns` UTF-8 characters. Colour sequences do not count.
std::string CutToWidth(absl::string_view line, int columns);

// Non-blocking: output is buffered until the descriptors accept it, so that a stopped reader does not stop the
// launcher. Not thread-safe.
class TerminalOutput {
 public:
  // If `live`, `out` is a terminal and shows a block; output for `error` goes there too if `error` is a terminal.
  TerminalOutput(int out, int error, bool live);

  // `text` consists of whole lines. If there is a block, it is shown by the next Present.
  void Out(absl::string_view text) { Put(out_, text); }
  void Error(absl::string_view text) { Put(error_, text); }
  // Sets the lines at the bottom; shown by the next Present.
  void SetBlock(std::vector<std::string> block) { block_ = std::move(block); }
  // Whether there is something to present.
  bool stale() const { return live_ && (!gathered_.empty() || block_ != drawn_); }
  void Present();
  // Leaves the block on the screen; later output appears below it.
  void EndBlock();
  // Call it when the terminal's size has changed.
  void SetColumns(int columns) { columns_ = columns; }

  // The descriptor to poll for writing; -1 if there is nothing to write.
  int waiting_fd() const;
  // Writes as much as possible without blocking. Call it when waiting_fd() is ready.
  void Write();
  // Writes everything, blocking for at most `seconds`.
  void Drain(double seconds);
  // Backpressure: so much is buffered that the tasks' output should not be read for now.
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
