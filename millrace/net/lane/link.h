// One connection of a lane, which carries frames in both directions.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/cross_memory.h"
#include "millrace/net/lane/event_loop.h"
#include "millrace/net/lane/frame.h"
#include "millrace/net/lane/frame_parser.h"
#include "millrace/net/lane/out_queue.h"

namespace millrace::net {

// Closures that reading has produced, to be run in order once the socket is armed again; not all of them run on the
// reading thread.
using Later = std::vector<EventLoop::Closure>;

// The result of the handshake.
struct LinkTerms {
  size_t peer_window = 0;                              // the flow-control window of the other side, in bytes
  std::shared_ptr<const PeerMemory> memory = nullptr;  // the other side's memory; null if it cannot be read
  bool peer_reads_memory = false;                      // whether the other side can read our memory
};

// Thread-safe unless stated otherwise. One thread at a time reads and parses frames and assigns them to calls, in
// order; then the socket is armed again (or this thread keeps watching it), and only then does the thread run handlers.
// Send writes immediately on the sender's thread, unless a write is in progress.
class LaneLink : public EventHandler {
 public:
  // Sends the message, or queues what cannot be sent yet. Returns false, and does nothing, if the link is over.
  bool Send(const FrameHeader& header, Bytes message = {});
  // Sends the acknowledgements of Fetch and Consumed, unless they were piggybacked on a frame sent meanwhile. Call it
  // after the handler.
  void Flush();
  // As Flush, for a call that continues: acknowledgements of little memory may wait to be piggybacked on the next
  // frame, at the latest on the end of the call.
  void FlushWithNext();
  // Drops the frames of an ended call that wait for credit. Returns true if those were all its frames, so that the
  // other side does not know the call.
  bool DropQueued(uint64_t call);

  // Copies the parts of a message that are in the sender's memory, and acknowledges them (see Flush). After an error
  // the link has ended, except after RESOURCE_EXHAUSTED, which loses only the message. Calls HandOver of `here` before
  // copying much; `here` is null if the thread has nothing to hand over.
  Status Fetch(Received* message, EventThread* here);
  // Acknowledges a message that nobody wants, and returns its credit.
  void Discard(Received message);
  // A handler has the message: returns credit for `bytes` to the sender (see Flush).
  void Consumed(size_t bytes);

  // Ends the link; later calls are no-ops. Announced memory is freed after the other side can see that the connection
  // is closed.
  void End(const Status& why);
  // Ends it when everything that is queued has been sent (or the other side is gone).
  void EndWhenRead();
  bool over() const { return over_flag_.load(std::memory_order_acquire); }

  // Called by a thread that is about to send a request and wait for the answer: it watches the link from now on, unless
  // another thread does.
  void WatchHere(EventWatch* here);

  void OnReadable(EventThread* here) override;
  void OnWritable() override;
  void OnGivenBack() override;
  void OnLeftAlone() override;
  LaneCore* core() const { return core_; }
  const std::shared_ptr<PeerCounters>& counters() const { return counters_; }

 protected:
  LaneLink(LaneCore* core, Fd fd, std::shared_ptr<PeerCounters> counters);
  ~LaneLink() override;

  // Starts reading; `self` is this object. An error if the link is already over.
  Status Arm(RefPtr<LaneLink> self);
  // Call it before calls are sent.
  void SetTerms(const LinkTerms& terms);
  // From now on both sides send something at least every LaneOptions::heartbeat, and the link ends if the other side is
  // silent for several of them. For connections between hosts: a network can swallow what is sent without ending the
  // connection.
  void StartHeartbeat();
  int fd() const { return fd_.get(); }
  // Encrypts from now on. Call it before anything is read or sent.
  void SetTls(std::unique_ptr<TlsStream> tls) { tls_ = std::move(tls); }
  // As recvmsg and sendmsg, without blocking, on the socket or through TLS.
  ssize_t Receive(absl::Span<const iovec> to);
  ssize_t SendPieces(absl::Span<const iovec> from);
  // After EAGAIN of SendPieces: TLS waits for bytes of the other side, not for room to send.
  bool tls_wants_input() const { return tls_ != nullptr && tls_->wants_input(); }
  // What a failed Receive or SendPieces means; `error` is errno.
  std::string Failure(int error) const;
  FrameParser* parser() { return &parser_; }  // for the reading thread
  const MemoryProbe& probe() const { return probe_; }

  // Called on the reading thread. An error ends the link.
  virtual Status OnFrame(Frame frame, EventThread* here, Later* later) = 0;
  // Called once, on any thread, without locks.
  virtual void OnOver(const Status& why) = 0;

 private:
  enum class Writing { kNo, kThread, kArmed };

  void ScheduleHeartbeat();
  void OnHeartbeat();
  // Counts a message of a call. An error if the other side ignores flow control.
  Status CountUnconsumed(const Frame& frame);
  Status ReadFrames(std::vector<Frame>* frames);
  Status Handle(Frame frame, EventThread* here, Later* later);
  void Run(Later later, EventThread* here);
  bool SendFrame(const FrameHeader& header, Bytes message, bool at_once);
  // The caller must have set writing_ to kThread.
  void Write();
  void AddCredit(uint64_t bytes);
  void OnReleased(uint64_t announcement);
  // A message that was partly in the sender's memory has been handled.
  void EndFetch(uint64_t announcement, size_t bytes);
  // Call it when something is queued. Returns true if nobody is writing; the caller must then call Write.
  [[nodiscard]] bool BeginWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LaneCore* const core_;
  const Fd fd_;
  std::unique_ptr<TlsStream> tls_;  // null: not encrypted; constant once the link reads
  const std::shared_ptr<PeerCounters> counters_;
  const MemoryProbe probe_;
  std::atomic<uint64_t> id_{0};             // its id in the event loop
  std::atomic<bool> armed_as_well_{false};  // armed in the event loop although a thread watches it
  std::atomic<int> shared_for_{0};          // messages still to be sent without watching: several threads use the link
  // Held by the reading thread. There is only one at a time anyway, but the lock makes its writes visible to the next.
  Mutex reading_mu_;
  FrameParser parser_;
  LinkTerms terms_;  // constant once calls are sent
  std::atomic<bool> over_flag_{false};
  // Messages that have arrived and that no handler has consumed.
  std::atomic<int64_t> unconsumed_messages_{0};
  std::atomic<int64_t> unconsumed_bytes_{0};
  // Since the last heartbeat.
  std::atomic<bool> heard_{true};
  std::atomic<bool> sent_{false};
  int silent_beats_ = 0;  // used by the timers' thread

  Mutex mu_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  Writing writing_ ABSL_GUARDED_BY(mu_) = Writing::kNo;
  OutQueue out_ ABSL_GUARDED_BY(mu_);
  uint64_t consumed_ ABSL_GUARDED_BY(mu_) = 0;  // bytes consumed and not yet acknowledged
  int fetches_ ABSL_GUARDED_BY(mu_) = 0;        // messages that are partly in the sender's memory
  bool end_when_read_ ABSL_GUARDED_BY(mu_) = false;
  LaneDeadlines::Id heartbeat_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
