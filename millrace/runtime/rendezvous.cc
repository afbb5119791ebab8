#include "millrace/runtime/rendezvous.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace millrace {

// Holds either a tensor or a waiter; the second to arrive consumes it and removes the slot.
struct LocalRendezvous::Slot {
  RendezvousItem item;
  Done waiter;
};

LocalRendezvous::LocalRendezvous() = default;

LocalRendezvous::~LocalRendezvous() {
  if (!IsEmpty()) Abort(Cancelled("the step has ended"));
}

Status LocalRendezvous::Send(absl::string_view key, RendezvousItem item) {
  Done waiter;
  {
    MutexLock lock(&mu_);
    if (!aborted_.ok()) return aborted_;
    std::unique_ptr<Slot>& slot = slots_[key];
    if (slot == nullptr) {
      slot = std::make_unique<Slot>(Slot{std::move(item), nullptr});
      return absl::OkStatus();
    }
    if (slot->waiter == nullptr) return AlreadyExists("tensor ", key, " was sent twice in one step");
    waiter = std::move(slot->waiter);
    slots_.erase(key);
  }
  waiter(std::move(item));
  return absl::OkStatus();
}

void LocalRendezvous::Recv(absl::string_view key, Done done) {
  StatusOr<RendezvousItem> result = Internal("no result");
  {
    MutexLock lock(&mu_);
    if (!aborted_.ok()) {
      result = aborted_;
    } else {
      std::unique_ptr<Slot>& slot = slots_[key];
      if (slot == nullptr) {
        slot = std::make_unique<Slot>(Slot{RendezvousItem(), std::move(done)});
        return;
      }
      if (slot->waiter != nullptr) {
        result = AlreadyExists("tensor ", key, " was received twice in one step");
      } else {
        result = std::move(slot->item);
        slots_.erase(key);
      }
    }
  }
  done(std::move(result));
}

void LocalRendezvous::Abort(Status why) {
  MR_CHECK(!why.ok());
  absl::flat_hash_map<std::string, std::unique_ptr<Slot>> slots;
  {
    MutexLock lock(&mu_);
    if (aborted_.ok()) aborted_ = why;
    why = aborted_;
    slots.swap(slots_);
  }
  // In key order, so that a simulation is deterministic.
  std::vector<std::pair<absl::string_view, Slot*>> waiting;
  for (const auto& [key, slot] : slots) {
    if (slot->waiter != nullptr) waiting.emplace_back(key, slot.get());
  }
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [key, slot] : waiting) slot->waiter(WithPrefix(absl::StrCat("receiving ", key, ": "), why));
}

bool LocalRendezvous::IsEmpty() const {
  MutexLock lock(&mu_);
  return slots_.empty();
}

}  // namespace millrace
