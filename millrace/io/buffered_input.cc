#include "millrace/io/buffered_input.h"

#include <algorithm>

namespace millrace {

Status BufferedInput::Fill() {
  if (!rest_.empty()) return absl::OkStatus();
  buffer_.resize(buffer_size_);
  MR_ASSIGN_OR_RETURN(const size_t got, file_->Read(buffer_.size(), buffer_.data()));
  rest_ = absl::string_view(buffer_).substr(0, got);
  return absl::OkStatus();
}

StatusOr<size_t> BufferedInput::Read(uint64_t n, std::string* out) {
  size_t done = 0;
  while (done < n) {
    // A large read bypasses the buffer.
    if (rest_.empty() && n - done >= buffer_size_) {
      const size_t before = out->size();
      const size_t wanted = static_cast<size_t>(std::min<uint64_t>(n - done, uint64_t{1} << 20));
      out->resize(before + wanted);
      const StatusOr<size_t> got = file_->Read(wanted, out->data() + before);
      out->resize(before + (got.ok() ? *got : 0));
      MR_RETURN_IF_ERROR(got.status());
      offset_ += *got;
      done += *got;
      if (*got < wanted) break;
      continue;
    }
    MR_RETURN_IF_ERROR(Fill());
    if (rest_.empty()) break;
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(n - done, rest_.size()));
    out->append(rest_.data(), piece);
    Take(piece);
    done += piece;
  }
  return done;
}

StatusOr<uint64_t> BufferedInput::Skip(uint64_t n) {
  uint64_t done = 0;
  while (done < n) {
    MR_RETURN_IF_ERROR(Fill());
    if (rest_.empty()) break;
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(n - done, rest_.size()));
    Take(piece);
    done += piece;
  }
  return done;
}

StatusOr<bool> BufferedInput::ReadLine(std::string* line) {
  line->clear();
  bool any = false;
  for (;;) {
    MR_RETURN_IF_ERROR(Fill());
    if (rest_.empty()) return any;
    any = true;
    const size_t end = rest_.find('\n');
    const size_t piece = std::min(end, rest_.size());
    line->append(rest_.data(), piece);
    Take(end == absl::string_view::npos ? piece : piece + 1);
    if (end == absl::string_view::npos) continue;
    if (!line->empty() && line->back() == '\r') line->pop_back();
    return true;
  }
}

}  // namespace millrace
