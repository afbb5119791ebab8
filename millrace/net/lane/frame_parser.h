// Frames out of the bytes of a connection.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/frame.h"
#include "millrace/tensor/buffer.h"

namespace millrace::net {

// Large segments are received straight into their own buffers: the parser says where the next bytes are to go. Everything is checked;
// after an error the parser is of no use. Not thread-safe.
class FrameParser {
 public:
  // Memory for large segments comes from `memory`, which outlives the parser.
  FrameParser(const FrameLimits& limits, Allocator* memory);

  void set_limits(const FrameLimits& limits) { limits_ = limits; }
  // Segments in the sender's memory are an error unless this is on.
  void set_remote_allowed(bool allowed) { remote_allowed_ = allowed; }

  // Where the next bytes of the connection go, in this order; never empty. Valid until Parse.
  absl::Span<const iovec> Room();
  // `count` bytes have been put there. Adds the frames that are now whole. INVALID_ARGUMENT says what was wrong with one,
  // RESOURCE_EXHAUSTED that there is no memory for it.
  Status Parse(size_t count, std::vector<Frame>* frames);
  // Whether the bytes of a large segment are being received.
  bool in_bulk() const { return state_ == State::kBulk; }

 private:
  enum class State { kHeader, kHead, kBulk };

  // The part of a frame that is being filled.
  char* Target(size_t* left);
  Status CheckHeader();
  Status StartHead();
  // Table and small bytes are here.
  Status FinishHead();
  Status AddSegments(const char* table, const char* small, RefPtr<const RefCounted> small_owner);
  Status FinishStage(std::vector<Frame>* frames);

  FrameLimits limits_;
  bool remote_allowed_ = false;
  Allocator* const memory_;
  State state_ = State::kHeader;
  // Bytes that were received beyond what was being filled: [begin_, end_).
  std::unique_ptr<char[]> staged_;
  size_t begin_ = 0;
  size_t end_ = 0;
  iovec room_[2];
  size_t direct_ = 0;  // bytes of room_ that are the target's

  Frame frame_;
  RefPtr<Buffer> head_;  // table and small bytes
  size_t filled_ = 0;    // of the target
  size_t part_ = 0;      // the large segment that is being filled
};

}  // namespace millrace::net
