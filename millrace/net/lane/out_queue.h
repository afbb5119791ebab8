// The send queue of a link.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/net/lane/frame.h"

namespace millrace::net {

// Holds the frames to write, in order; the frames that wait for credit (flow control); and announced memory, which is
// kept until the other side has read it. Not thread-safe: guarded by its link's lock. Frames that it returns may own
// other objects' memory, so destroy them without that lock.
class OutQueue {
 public:
  struct Limits {
    size_t small = 0;    // messages of up to this many bytes may exceed the window
    size_t reserve = 0;  // by this many bytes in total
  };
  // Adds the bytes of queued frames to `bytes_sent`.
  OutQueue(const Limits& limits, std::atomic<uint64_t>* bytes_sent) : limits_(limits), bytes_sent_(bytes_sent) {}

  // The number of bytes that may be in flight to the other side. Call it before calls are sent.
  void set_window(size_t window) { window_ = window; }
  uint64_t NextAnnouncement() { return next_announcement_++; }

  // Adds a frame. Returns false if it must wait for credit, or behind a frame of the same call that does.
  bool Add(OutFrame frame);
  // The other side has consumed `bytes`. Returns true if waiting frames have been queued.
  bool AddCredit(uint64_t bytes);
  // Moves the waiting frames of an ended call to `dropped`. Returns true if other waiting frames have been queued. Sets
  // `unknown` if the other side does not know the call.
  bool DropWaiting(uint64_t call, std::vector<OutFrame>* dropped, bool* unknown);
  // The other side has read the announced memory, which is returned.
  Bytes Release(uint64_t announcement);

  bool empty() const { return queue_.empty(); }
  // The number of frames that wait for credit.
  size_t waiting() const { return waiting_.size(); }
  // True if everything queued may wait to be piggybacked on a later frame: acknowledgements of little memory.
  bool can_wait() const;
  bool partly_written() const { return written_ != 0; }
  // A frame that acknowledges the reading of `bytes` is queued.
  void Owe(size_t bytes) { owed_ += bytes; }
  // Everything that is queued is about to be written.
  void BeginWrite();
  // Fills `pieces` with the next bytes to write and returns the number of pieces; `total` is their size. The frames
  // stay queued until Advance.
  size_t Gather(iovec* pieces, size_t most, size_t* total) const;
  // `bytes` were written; moves finished frames to `done`.
  void Advance(size_t bytes, std::vector<OutFrame>* done);

  // At the end of the link: the queued frames; and the waiting frames and announced memory.
  void TakeQueued(std::vector<OutFrame>* frames);
  void TakeRest(std::vector<OutFrame>* frames, std::vector<Bytes>* announced);

 private:
  bool Admits(const OutFrame& frame) const;
  void Queue(OutFrame frame);
  bool QueueWaiting();

  const Limits limits_;
  std::atomic<uint64_t>* const bytes_sent_;
  size_t window_ = 0;
  std::deque<OutFrame> queue_;    // to be written; the first may be partly written
  size_t written_ = 0;            // bytes of the first frame that are written
  std::deque<OutFrame> waiting_;  // frames that wait for credit
  uint64_t in_flight_ = 0;        // bytes that the other side has not consumed
  uint64_t next_announcement_ = 1;
  absl::flat_hash_map<uint64_t, Bytes> announced_;
  size_t owed_ = 0;     // bytes that were read and are not yet acknowledged
  size_t patient_ = 0;  // frames at the end of the queue that may wait
};

}  // namespace millrace::net
