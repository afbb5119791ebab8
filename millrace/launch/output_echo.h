// The output of a keeper's program on the keeper's own stdout and stderr.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace millrace::launch {

// Holds what has not been written yet. Writes whole lines, so that those of several tasks do not mix where a scheduler
// puts them together, and without blocking, though the descriptors, which others may share, stay blocking. Not
// thread-safe.
class OutputEcho {
 public:
  void Add(bool error, absl::string_view bytes);
  size_t size() const { return pending_[0].size() + pending_[1].size(); }
  // When the program has ended, what is left is written as it is.
  void set_ended(bool ended) { ended_ = ended; }
  // To poll for writing; -1 if there is nothing to write.
  int waiting_fd(bool error) const;
  // Call it when the descriptor is writable.
  void Write(bool error);
  // Writes the rest, for at most `limit`.
  void Drain(absl::Duration limit);

 private:
  // How much of it is written next.
  size_t Piece(bool error) const;

  std::string pending_[2];
  bool ended_ = false;
  bool closed_[2] = {false, false};
};

}  // namespace millrace::launch
