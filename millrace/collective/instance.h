// One operation of a group in flight on this rank.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/mutex.h"
#include "millrace/collective/algorithm.h"
#include "millrace/collective/mailroom.h"
#include "millrace/collective/wire.h"

namespace millrace::collective {

// What an instance needs of its group. Thread-safe.
class InstanceHost {
 public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "rank 3 (/job:worker/task:3 at host:2222)".
  virtual const std::string& RankName(int rank) const = 0;
  virtual void SendTo(int rank, net::Bytes message) = 0;
  // Whether the rank can read this process's memory.
  virtual bool ReadsOurs(int rank) const = 0;
  // The memory of the rank; null if this process cannot read it.
  virtual std::shared_ptr<const LentMemory> MemoryOf(int rank) const = 0;
  // This rank's mailroom, with slots; null if there is none.
  virtual Mailroom* mailroom() const = 0;
  // Whether the rank sees this rank's slots.
  virtual bool SeesSlots(int rank) const = 0;
  // Through which the slots of the rank are read; null if this rank does not see them.
  virtual Mailbox* MailboxOf(int rank) const = 0;
  // Keeps `owner` alive for as long as ranks that have not heard of an error may read its memory.
  virtual void KeepForReaders(RefPtr<const RefCounted> owner) = 0;
  // Ends every operation of the group, on all ranks, with `why`.
  virtual void Fail(Status why) = 0;
  // The instance is over. `all_took_part`: its end shows that all ranks have started it.
  virtual void Ended(uint64_t sequence, bool all_took_part) = 0;

 protected:
  ~InstanceHost() = default;
};

struct InstanceLimits {
  // An operation of up to so many bytes sends before it knows that the receiver has started it.
  size_t eager_bytes = 0;
};

// Messages may arrive before this rank has started the operation; they are kept. Whoever brings something while no
// other thread works on the instance works on it: the algorithm runs on one thread at a time, without a lock.
//
// Thread-safe.
class Instance final : public std::enable_shared_from_this<Instance>, private Exchange {
 public:
  using Done = absl::AnyInvocable<void(Status)>;

  Instance(std::shared_ptr<InstanceHost> host, uint64_t sequence, InstanceLimits limits);

  // What this rank does.
  struct Part {
    OperationSpec spec = {};
    std::unique_ptr<Algorithm> algorithm = nullptr;
    RefPtr<const RefCounted> owner = nullptr;  // keeps the operation's memory alive; may be null
    Done done = nullptr;                       // called once
  };

  // This rank starts the operation. Call it once.
  void Begin(Part part);
  // A message of another rank. Call Work afterwards, when nothing is locked.
  void Queue(int from, Message message);
  // Handles what is queued, unless another thread is doing so.
  void Work();
  // The other rank has left the group; nothing of it follows.
  void PeerLeft(int rank);
  // Ends it with an error; also if it begins later.
  void Fail(Status why);

  uint64_t sequence() const { return sequence_; }
  // The rank that the operation waits for; negative if it waits for none.
  int awaited() const { return awaited_.load(std::memory_order_relaxed); }
  // The operation, if this rank has started it.
  std::optional<OperationSpec> spec() const;

 private:
  struct Event {
    enum class Kind { kMessage, kBegin, kLeft, kFail } kind;
    int from = 0;
    Message message = {};
    std::unique_ptr<Part> part = nullptr;
    Status why = {};
  };
  // The exchange with one other rank.
  struct Peer {
    bool source = false;
    bool destination = false;
    bool checked = false;  // its description is the same as ours
    bool ready = false;    // it takes data
    bool done = false;     // it has read everything
    bool left = false;
    bool lent = false;      // it was sent memory of the operation
    bool borrowed = false;  // we were
    uint32_t next_out = 0;
    uint32_t next_in = 0;
    std::map<uint32_t, Message> early;  // not yet due, by index
    size_t early_bytes = 0;
    std::vector<net::Bytes> held;  // until it is ready
  };
  // kFailing: the group has been told, and will tell this instance.
  enum class Phase { kNotBegun, kRunning, kDraining, kFailing, kOver };

  void Queue(Event event);
  void Post(Event event) {
    Queue(std::move(event));
    Work();
  }
  void Handle(Event event);
  void HandleBegin(Part part);
  void HandleMessage(int from, Message message);
  // Gives the algorithm all messages that are due.
  void Advance();
  Status Deliver(int from, const Message& message);
  void Drain();
  void Finish(Status status);
  Status LeftEarly(int rank) const;
  void FailGroup(Status why);
  void Transmit(int to, Message message, absl::string_view borrowed_bytes, bool is_borrowed);
  void Send(int to, absl::string_view bytes) override;
  void SendOwned(int to, net::Bytes bytes) override;
  char* Stage(size_t size, absl::Span<const int> readers) override;
  bool IsStaged(absl::string_view bytes) const;
  bool AwaitsDone(const Peer& peer) const { return peer.destination && (peer.lent || !peer.source); }

  const std::shared_ptr<InstanceHost> host_;
  const uint64_t sequence_;
  const InstanceLimits limits_;
  std::atomic<int> awaited_{-1};

  mutable Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  std::optional<OperationSpec> begun_ ABSL_GUARDED_BY(mu_);

  // Used by the thread that works on it.
  Phase phase_ = Phase::kNotBegun;
  Part part_;
  Status failed_;              // why it is over, if it never began
  std::vector<Peer> peers_;    // by rank
  std::vector<Event> before_;  // messages before it has begun
  std::vector<char*> slots_;   // of the mailroom
};

}  // namespace millrace::collective
