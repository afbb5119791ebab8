// Parses frames from the byte stream of a connection.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/net/lane/frame.h"
#include "millrace/tensor/buffer.h"

namespace millrace::net {

// Large segments are received directly into their own buffers: the parser says where to put the next bytes. All input
// is validated; after an error the parser is unusable. Not thread-safe.
class FrameParser {
 public:
  // Memory for large segments comes from `memory`, which must outlive the parser.
  FrameParser(const FrameLimits& limits, Allocator* memory);

  void set_limits(const FrameLimits& limits) { limits_ = limits; }
  // Segments in the sender's memory are an error unless this is set.
  void set_remote_allowed(bool allowed) { remote_allowed_ = allowed; }

  // Where to put the next bytes of the connection, in this order; never empty. Valid until Parse.
  absl::Span<const iovec> Room();
  // `count` bytes have been put there. Appends the frames that are now complete. INVALID_ARGUMENT describes a malformed
  // frame; RESOURCE_EXHAUSTED if there is no memory for one.
  Status Parse(size_t count, std::vector<Frame>* frames);
  // Whether the bytes of a large segment are being received.
  bool in_bulk() const { return state_ == State::kBulk; }

 private:
  enum class State { kHeader, kHead, kBulk };

  // The part of a frame that is currently being filled.
  char* Target(size_t* left);
  Status CheckHeader();
  Status StartHead();
  // Called when the table and the small bytes have arrived.
  Status FinishHead();
  Status AddSegments(const char* table, const char* small, RefPtr<const RefCounted> small_owner);
  Status FinishStage(std::vector<Frame>* frames);

  FrameLimits limits_;
  bool remote_allowed_ = false;
  Allocator* const memory_;
  State state_ = State::kHeader;
  // Bytes received beyond the current target: [begin_, end_).
  std::unique_ptr<char[]> staged_;
  size_t begin_ = 0;
  size_t end_ = 0;
  iovec room_[2];
  size_t direct_ = 0;  // bytes of room_ that belong to the target

  Frame frame_;
  RefPtr<Buffer> head_;  // table and small bytes
  size_t filled_ = 0;    // of the target
  size_t part_ = 0;      // the large segment that is being filled
};

}  // namespace millrace::net
