#include "millrace/collective/mailroom.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <utility>

#include "millrace/base/varint.h"

namespace millrace::collective {
namespace {

// The bytes of a ring, a power of two: several small tensors, or a thousand messages that lend memory.
constexpr uint64_t kRing = uint64_t{128} << 10;
// A message and its length; a larger one would leave no room for the next.
constexpr uint64_t kMostLeft = kRing / 2;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Ring {
  alignas(64) std::atomic<uint64_t> left;   // bytes, by the sender
  alignas(64) std::atomic<uint64_t> taken;  // bytes, by the receiver
  alignas(64) char bytes[kRing];

  void CopyIn(uint64_t at, const char* data, size_t size) {
    const size_t first = std::min<size_t>(size, kRing - at % kRing);
    std::memcpy(bytes + at % kRing, data, first);
    std::memcpy(bytes, data + first, size - first);
  }
  void CopyOut(uint64_t at, char* data, size_t size) const {
    const size_t first = std::min<size_t>(size, kRing - at % kRing);
    std::memcpy(data, bytes + at % kRing, first);
    std::memcpy(data + first, bytes, size - first);
  }
};

}  // namespace

struct MailroomSlot {
  alignas(64) std::atomic<uint32_t> uses;  // 0: free. One of the owner, and one for each offer that has not been read
  alignas(64) char bytes[Mailroom::kSlotBytes];
};

// Zeros, as the system gives it, are empty rings and free slots.
struct MailroomLayout {
  std::array<char, 32> key;
  alignas(64) SharedBell bell;
  alignas(64) std::atomic<uint32_t> must_call;
  alignas(64) Ring rings[1];  // one for each sender; then the slots, which take memory when they are first used

  static size_t SizeFor(int ranks) {
    return sizeof(MailroomLayout) + sizeof(Ring) * static_cast<size_t>(ranks - 1) +
           sizeof(MailroomSlot) * Mailroom::kSlots;
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

MailroomMemory::~MailroomMemory() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

MailroomSlot& MailroomMemory::slot(int number) const {
  const size_t behind = sizeof(MailroomSlot) * static_cast<size_t>(Mailroom::kSlots - number);
  return *reinterpret_cast<MailroomSlot*>(static_cast<char*>(memory_) + size_ - behind);
}

MailroomSlot* MailroomMemory::Find(uint64_t offset, uint64_t size, const char** at) const {
  for (int number = 0; number < Mailroom::kSlots; ++number) {
    const uint64_t begin = OffsetOf(slot(number).bytes);
    if (offset < begin || offset - begin >= Mailroom::kSlotBytes) continue;
    if (size > Mailroom::kSlotBytes - (offset - begin)) return nullptr;
    *at = slot(number).bytes + (offset - begin);
    return &slot(number);
  }
  return nullptr;
}

std::string EncodeMailroomOffer(const MailroomOffer& offer) {
  std::string text;
  PutVarint(&text, offer.process);
  PutVarint(&text, offer.descriptor);
  text.append(offer.key.data(), offer.key.size());
  return text;
}

bool ReadMailroomOffer(net::BytesReader* reader, MailroomOffer* offer) {
  return reader->ReadVarint(&offer->process) && offer->process <= std::numeric_limits<pid_t>::max() &&
         reader->ReadVarint(&offer->descriptor) && offer->descriptor <= std::numeric_limits<int>::max() &&
         reader->Read(offer->key.data(), offer->key.size());
}

// ---- The receiver

StatusOr<std::unique_ptr<Mailroom>> Mailroom::Make(int ranks) {
  if (ranks > kMostRanks) return FailedPrecondition("too many ranks for a mailroom");
  Fd fd(memfd_create("millrace-mailroom", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const size_t size = MailroomLayout::SizeFor(ranks);
  if (!fd.ok() || ftruncate(fd.get(), static_cast<off_t>(size)) != 0 || fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return Unavailable("there is no shared memory: ", std::strerror(errno));
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return Unavailable("there is no shared memory: ", std::strerror(errno));
  return std::unique_ptr<Mailroom>(new Mailroom(std::move(fd), memory, size, ranks));
}

Mailroom::Mailroom(Fd fd, void* memory, size_t size, int ranks)
    : fd_(std::move(fd)), memory_(memory, size), taken_(static_cast<size_t>(ranks)) {
  offer_.process = static_cast<uint64_t>(getpid());
  offer_.descriptor = static_cast<uint64_t>(fd_.get());
  std::random_device random;
  for (char& byte : offer_.key) byte = static_cast<char>(random());
  memory_->key = offer_.key;
}

SharedBell* Mailroom::bell() { return &memory_->bell; }

void Mailroom::set_must_call(bool must) { memory_->must_call.store(must ? 1 : 0, std::memory_order_seq_cst); }

StatusOr<bool> Mailroom::Take(int from, std::string* message) {
  Ring& ring = memory_->rings[from];
  uint64_t& taken = taken_[from];
  const uint64_t there = ring.left.load(std::memory_order_seq_cst) - taken;
  if (there == 0) return false;
  uint32_t size = 0;
  if (there > kRing || there < sizeof(size)) return InvalidArgument("it has left its ring in disorder");
  ring.CopyOut(taken, reinterpret_cast<char*>(&size), sizeof(size));
  if (size > there - sizeof(size)) return InvalidArgument("it has left a message that is cut");
  message->resize(size);
  ring.CopyOut(taken + sizeof(size), message->data(), size);
  taken += sizeof(size) + size;
  ring.taken.store(taken, std::memory_order_release);
  return true;
}

char* Mailroom::TakeSlot() {
  for (int number = 0; number < kSlots; ++number) {
    uint32_t free = 0;
    MailroomSlot& slot = memory_.slot(number);
    if (slot.uses.compare_exchange_strong(free, 1, std::memory_order_acquire)) return slot.bytes;
  }
  return nullptr;
}

void Mailroom::ReturnSlot(const char* slot) {
  const char* at = nullptr;
  memory_.Find(memory_.OffsetOf(slot), 0, &at)->uses.fetch_sub(1, std::memory_order_release);
}

uint64_t Mailroom::Offer(const char* at, size_t size) {
  const uint64_t offset = memory_.OffsetOf(at);
  MailroomSlot* const slot = memory_.Find(offset, size, &at);
  MR_CHECK(slot != nullptr);
  slot->uses.fetch_add(1, std::memory_order_release);
  return offset;
}

// ---- The sender

StatusOr<std::unique_ptr<Mailbox>> Mailbox::Open(const MailroomOffer& offer, int ranks, int own_rank) {
  const std::string path = absl::StrCat("/proc/", offer.process, "/fd/", offer.descriptor);
  // The number may by now be that of another file: look before it is opened, which may have an effect.
  struct stat status {};
  const size_t size = MailroomLayout::SizeFor(ranks);
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != static_cast<off_t>(size))
    return Unavailable("there is no mailroom at ", path);
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  // Sealed, so that the memory cannot be taken away while it is used.
  if (!fd.ok() || fcntl(fd.get(), F_GET_SEALS) != kSeals || fstat(fd.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(size))
    return Unavailable("there is no mailroom at ", path, ": ", std::strerror(errno));
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return Unavailable("the mailroom cannot be used: ", std::strerror(errno));
  std::unique_ptr<Mailbox> box(new Mailbox(memory, size, own_rank));
  if (box->memory_->key != offer.key) return Unavailable("at ", path, " is another mailroom");
  return box;
}

Mailbox::Mailbox(void* memory, size_t size, int own_rank) : memory_(memory, size), own_rank_(own_rank) {}

Mailbox::Left Mailbox::Leave(const net::Bytes& message) {
  const auto size = static_cast<uint32_t>(message.size());
  const uint64_t needed = sizeof(size) + message.size();
  if (needed > kMostLeft || memory_->must_call.load(std::memory_order_relaxed) != 0) return Left::kNo;
  Ring& ring = memory_->rings[own_rank_];
  {
    MutexLock lock(&mu_);
    const uint64_t used = left_ - ring.taken.load(std::memory_order_acquire);
    if (used > kRing || needed > kRing - used) return Left::kNo;
    ring.CopyIn(left_, reinterpret_cast<const char*>(&size), sizeof(size));
    uint64_t at = left_ + sizeof(size);
    for (const net::Bytes::Piece& piece : message.pieces()) {
      ring.CopyIn(at, piece.data.data(), piece.data.size());
      at += piece.data.size();
    }
    left_ = at;
    ring.left.store(at, std::memory_order_seq_cst);
  }
  // In one order with set_must_call and the look that follows it: either this sees the flag, or the receiver sees the
  // message.
  if (memory_->must_call.load(std::memory_order_seq_cst) != 0) return Left::kCall;
  memory_->bell.Ring(static_cast<uint32_t>(own_rank_) + 1);
  return Left::kYes;
}

StatusOr<const char*> Mailbox::Offered(uint64_t offset, uint64_t size) const {
  const char* at = nullptr;
  const MailroomSlot* const slot = memory_.Find(offset, size, &at);
  if (slot == nullptr || slot->uses.load(std::memory_order_acquire) == 0)
    return InvalidArgument("it offers ", size, " bytes that are in no slot in use");
  return at;
}

void Mailbox::Release(uint64_t offset) {
  const char* at = nullptr;
  if (MailroomSlot* const slot = memory_.Find(offset, 0, &at); slot != nullptr)
    slot->uses.fetch_sub(1, std::memory_order_release);
}

}  // namespace millrace::collective
