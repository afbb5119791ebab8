// Windows over the elements of a pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/data/dataset.h"

namespace millrace {

// One pass over the windows of the elements that `input` gives. Not thread-safe.
class WindowPass {
 public:
  // Sizes are positive, and their products do not overflow.
  WindowPass(Generator input, WindowOptions options) : input_(std::move(input)), options_(options) {}

  // Stores the elements of the next window, at least one; returns false at the end.
  StatusOr<bool> Next(std::vector<std::vector<Tensor>>* window) {
    const int64_t reach = 1 + options_.stride * (options_.size - 1);
    MR_RETURN_IF_ERROR(Fill(reach));
    const auto buffered = static_cast<int64_t>(buffer_.size());
    if (buffered == 0 || (options_.drop_remainder && buffered < reach)) {
      buffer_.clear();
      ended_ = true;
      return false;
    }
    window->clear();
    for (int64_t i = 0; i < std::min(buffered, reach); i += options_.stride) window->push_back(buffer_[i]);
    MR_RETURN_IF_ERROR(Advance());
    return true;
  }

 private:
  Status Fill(int64_t count) {
    while (!ended_ && static_cast<int64_t>(buffer_.size()) < count) {
      std::vector<Tensor> element;
      MR_ASSIGN_OR_RETURN(const bool more, input_(&element));
      if (more) {
        buffer_.push_back(std::move(element));
      } else {
        ended_ = true;
      }
    }
    return absl::OkStatus();
  }

  Status Advance() {
    const int64_t dropped = std::min<int64_t>(options_.shift, static_cast<int64_t>(buffer_.size()));
    buffer_.erase(buffer_.begin(), buffer_.begin() + dropped);
    for (int64_t i = dropped; i < options_.shift && !ended_; ++i) {
      std::vector<Tensor> skipped;
      MR_ASSIGN_OR_RETURN(const bool more, input_(&skipped));
      ended_ = !more;
    }
    return absl::OkStatus();
  }

  const Generator input_;
  const WindowOptions options_;
  std::deque<std::vector<Tensor>> buffer_;
  bool ended_ = false;
};

}  // namespace millrace
