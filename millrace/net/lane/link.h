// One connection of a lane: frames both ways.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/cross_memory.h"
#include "millrace/net/lane/event_loop.h"
#include "millrace/net/lane/frame.h"
#include "millrace/net/lane/frame_parser.h"

namespace millrace::net {

// Work that reading has found, to be done when the socket is armed again. In order; not everything on this thread.
using Later = std::vector<EventLoop::Closure>;

// What two tasks found out about each other in the handshake.
struct LinkTerms {
  size_t peer_window = 0;           // what the other side takes before it has consumed it
  pid_t process = 0;                // the other side's, where its memory can be read
  bool peer_reads_memory = false;   // the other side can read ours
};

// Thread-safe unless said. One thread at a time reads, parses and finds out whose the frames are, in order; then the socket is armed
// again (or watched by this thread still), and only then does it run handlers. Sending writes at once on the sender's thread when nothing else is being written.
class LaneLink : public EventHandler {
 public:
  // Sends, or queues what cannot be sent yet. False, and nothing happens, when the link is over.
  bool Send(const FrameHeader& header, Bytes message = {});
  // Sends what Fetch and Consumed have to say, unless something that was sent meanwhile took it along. After the handler.
  void Flush();
  // As Flush, for a call that goes on: that it was fetched may wait for something to ride with, the call's own end at the latest, unless it is much.
  void FlushWithNext();
  // Drops what is queued for want of credit of a call that is over. True when that was all there was: the other side knows nothing of the call.
  bool DropQueued(uint64_t call);

  // Copies what a message has in the sender's memory, and lets the sender know (see Flush). An error has ended the link, but for RESOURCE_EXHAUSTED,
  // which costs the message only.
  Status Fetch(Received* message);
  // Of a message that nobody wants: lets the sender know, and gives its credit back.
  void Discard(Received message);
  // A handler has the message: its sender may send as much again (see Flush).
  void Consumed(size_t bytes);

  // Ends the link, once. What is announced is freed after the other side can see that the connection is closed.
  void End(const Status& why);
  // Ends it when everything that is queued has been sent (or the other side is gone).
  void EndWhenRead();
  bool over() const { return over_flag_.load(std::memory_order_acquire); }

  // The thread is about to send what it expects an answer to: it watches the link from now on, unless another one does.
  void WatchHere(EventWatch* here);

  void OnReadable() override;
  void OnWritable() override;
  void OnGivenBack() override;
  void OnLeftAlone() override;
  LaneCore* core() const { return core_; }
  const std::shared_ptr<PeerCounters>& counters() const { return counters_; }

 protected:
  LaneLink(LaneCore* core, Fd fd, std::shared_ptr<PeerCounters> counters);
  ~LaneLink() override;

  // Begins to read; `self` is this. An error when the link is over already.
  Status Arm(RefPtr<LaneLink> self);
  // Before calls are sent.
  void SetTerms(const LinkTerms& terms);
  int fd() const { return fd_.get(); }
  FrameParser* parser() { return &parser_; }  // for the thread that reads
  const MemoryProbe& probe() const { return probe_; }

  // On the thread that reads. An error ends the link.
  virtual Status OnFrame(Frame frame, Later* later) = 0;
  // Once, without locks, on any thread.
  virtual void OnOver(const Status& why) = 0;

 private:
  enum class Writing { kNo, kThread, kArmed };

  Status ReadFrames(std::vector<Frame>* frames);
  Status Handle(Frame frame, Later* later);
  void Run(Later later);
  // Whether a frame may go now.
  bool Admits(const OutFrame& frame) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool SendFrame(const FrameHeader& header, Bytes message, bool at_once);
  void Queue(OutFrame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The caller has set writing_ to kThread.
  void Write();
  // Counts what was written; finished frames go to `done`.
  void Advance(size_t bytes, std::vector<OutFrame>* done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddCredit(uint64_t bytes);
  // Queues what waited and may go now. True: the caller is to call Write.
  [[nodiscard]] bool QueueWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnReleased(uint64_t announcement);
  // A message with memory of the sender's has been dealt with.
  void EndFetch(uint64_t announcement, size_t bytes);
  // What is queued is about to be written.
  void BeginWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LaneCore* const core_;
  const Fd fd_;
  const Fd write_fd_;  // the same socket
  const std::shared_ptr<PeerCounters> counters_;
  const MemoryProbe probe_;
  std::atomic<uint64_t> id_{0};  // in the event loop
  std::atomic<bool> armed_as_well_{false};  // although it is watched
  std::atomic<int> shared_for_{0};          // messages that are still sent by threads that do not watch
  // Of the thread that reads. One does so at a time anyway; but that the next one sees what the last one did is only promised by a lock.
  Mutex reading_mu_;
  FrameParser parser_;
  LinkTerms terms_;  // constant once calls are sent
  std::atomic<bool> over_flag_{false};

  Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  Writing writing_ ABSL_GUARDED_BY(mu_) = Writing::kNo;
  std::deque<OutFrame> queue_ ABSL_GUARDED_BY(mu_);    // to be written, the first perhaps in part
  size_t written_ ABSL_GUARDED_BY(mu_) = 0;            // of the first
  std::deque<OutFrame> waiting_ ABSL_GUARDED_BY(mu_);  // for credit
  uint64_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;        // bytes that the other side has not consumed
  uint64_t next_announcement_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<uint64_t, Bytes> announced_ ABSL_GUARDED_BY(mu_);
  uint64_t consumed_ ABSL_GUARDED_BY(mu_) = 0;  // and not yet told
  size_t owed_ ABSL_GUARDED_BY(mu_) = 0;        // bytes that were fetched, of which the sender is not told yet
  size_t patient_ ABSL_GUARDED_BY(mu_) = 0;     // frames at the queue's end that nobody waits for
  int fetches_ ABSL_GUARDED_BY(mu_) = 0;        // messages that are partly in the sender's memory
  bool end_when_read_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace::net
