// Shared memory through which the other ranks of a host leave small messages for this one, and read what it has put
// there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/base/shared_bell.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace::collective {

// How another process of this host finds a mailroom.
struct MailroomOffer {
  uint64_t process = 0;
  uint64_t descriptor = 0;        // in that process
  std::array<char, 32> key = {};  // random bytes at the front of the memory
};
std::string EncodeMailroomOffer(const MailroomOffer& offer);
[[nodiscard]] bool ReadMailroomOffer(net::BytesReader* reader, MailroomOffer* offer);

// The memory: a head, a ring of bytes for each sender, and slots.
struct MailroomLayout;
struct MailroomSlot;

// A mapping of the memory.
class MailroomMemory {
 public:
  MailroomMemory() = default;
  MailroomMemory(void* memory, size_t size) : memory_(memory), size_(size) {}
  ~MailroomMemory();
  MailroomMemory(const MailroomMemory&) = delete;
  MailroomMemory& operator=(const MailroomMemory&) = delete;
  MailroomLayout* operator->() const { return static_cast<MailroomLayout*>(memory_); }
  MailroomSlot& slot(int number) const;
  uint64_t OffsetOf(const char* at) const { return static_cast<uint64_t>(at - static_cast<const char*>(memory_)); }
  // The slot that has `size` bytes at `offset`, which become `at`; null if none has.
  MailroomSlot* Find(uint64_t offset, uint64_t size, const char** at) const;

 private:
  void* const memory_ = nullptr;
  const size_t size_ = 0;
};

// The receiver's side. Messages are left without waking anybody, unless a thread waits at the bell; see set_must_call.
//
// Take is called by one thread at a time; everything else is thread-safe.
class Mailroom {
 public:
  // With more ranks than this the memory would be too large.
  static constexpr int kMostRanks = 64;

  // For the messages of `ranks` senders. An error if there is no memory, or too many ranks.
  static StatusOr<std::unique_ptr<Mailroom>> Make(int ranks);

  const MailroomOffer& offer() const { return offer_; }
  // Rings for each message, by the sender's rank + 1, and for whatever else a waiting thread of this process should
  // see.
  SharedBell* bell();
  // While it is set, senders call after they have left a message (Mailbox::Left::kCall), because no thread looks.
  // Afterwards look for messages once more: those that came before are not called for.
  void set_must_call(bool must);

  // Takes the next message of a sender. Returns false if there is none; an error if the memory is not as a sender
  // leaves it.
  StatusOr<bool> Take(int from, std::string* message);

  // Slots: memory that the senders read in place. A slot is in use until it has been returned and read as often as it
  // was offered.
  static constexpr int kSlots = 4;
  static constexpr size_t kSlotBytes = size_t{2} << 20;
  // Null if all are in use.
  char* TakeSlot();
  void ReturnSlot(const char* slot);
  // Lets a sender read `size` bytes within a slot once, after everything that was written there before. Gives the
  // number by which it finds them.
  uint64_t Offer(const char* at, size_t size);

 private:
  Mailroom(Fd fd, void* memory, size_t size, int ranks);

  const Fd fd_;
  const MailroomMemory memory_;
  MailroomOffer offer_;
  std::vector<uint64_t> taken_;  // bytes, by sender
};

// The sender's side: this rank's ring in the mailroom of another.
//
// Thread-safe.
class Mailbox {
 public:
  // An error if it cannot be opened, or is not what was offered.
  static StatusOr<std::unique_ptr<Mailbox>> Open(const MailroomOffer& offer, int ranks, int own_rank);

  enum class Left {
    kYes,
    kCall,  // yes, and the receiver must be called: it does not look by itself
    kNo,    // it does not fit, or the receiver would have to be called anyway: send it in another way
  };
  Left Leave(const net::Bytes& message);

  // What the mailroom's owner has offered (Mailroom::Offer): it stays as it is until Release. INVALID_ARGUMENT if that
  // is in no slot.
  StatusOr<const char*> Offered(uint64_t offset, uint64_t size) const;
  void Release(uint64_t offset);

 private:
  Mailbox(void* memory, size_t size, int own_rank);

  const MailroomMemory memory_;
  const int own_rank_;
  Mutex mu_;
  uint64_t left_ ABSL_GUARDED_BY(mu_) = 0;  // bytes
};

}  // namespace millrace::collective
