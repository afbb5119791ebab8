#include "millrace/task/running_parts.h"

#include <utility>

#include "millrace/base/log.h"
#include "millrace/task/task_session.h"

namespace millrace {
namespace {

// The number of idle ActiveParts to keep; each holds the memory of an earlier run.
constexpr size_t kIdleParts = 16;

}  // namespace

RunningParts::~RunningParts() {
  MutexLock lock(&mu_);
  MR_CHECK(first_ == nullptr);
}

std::unique_ptr<ActivePart> RunningParts::TakeIdle(const TaskSession& session) {
  if (idle_.empty()) return nullptr;
  // The last one first: it is the most likely one, and its memory the most likely to be in a cache.
  size_t at = idle_.size() - 1;
  for (size_t i = idle_.size(); i-- > 0;) {
    if (idle_[i]->arena->budget() == session.memory()) {
      at = i;
      break;
    }
  }
  std::swap(idle_[at], idle_.back());
  std::unique_ptr<ActivePart> part = std::move(idle_.back());
  idle_.pop_back();
  return part;
}

StatusOr<ActivePart*> RunningParts::Enter(Entry entry) {
  RefPtr<StepArena> others;  // released without the lock
  ActivePart* part = nullptr;
  MutexLock lock(&mu_);
  if (!refused_.ok()) return refused_;
  std::unique_ptr<ActivePart> fresh = TakeIdle(*entry.session);
  if (fresh == nullptr) fresh = std::make_unique<ActivePart>();
  part = fresh.release();
  if (!part->arena || !(part->arena->budget() == entry.session->memory())) {
    others = std::move(part->arena);
    part->arena = MakeRef<StepArena>(entry.session->memory());
  }
  part->step_id = entry.step_id != 0 ? entry.step_id : next_step_id_++;
  part->session = entry.session;
  part->since = entry.since;
  if (entry.cancellation != nullptr) {
    part->cancellation = entry.cancellation;
    part->owner = std::move(entry.owner);
  } else {
    if (!part->own_cancellation || !part->own_cancellation->IsUnused()) part->own_cancellation.emplace();
    part->cancellation = &*part->own_cancellation;
  }
  part->left = false;
  part->previous = nullptr;
  part->next = first_;
  if (first_ != nullptr) first_->previous = part;
  first_ = part;
  ++active_;
  return part;
}

std::unique_ptr<ActivePart> RunningParts::Recycle(ActivePart* part) {
  if (idle_.size() >= kIdleParts) return std::unique_ptr<ActivePart>(part);
  idle_.emplace_back(part);
  return nullptr;
}

void RunningParts::CountEnd(std::vector<absl::AnyInvocable<void()>>* on_idle) {
  if (--active_ == 0) on_idle->swap(on_idle_);
}

void RunningParts::Leave(ActivePart* part, bool ended) {
  // Released without the lock.
  std::shared_ptr<void> owner;
  std::unique_ptr<ActivePart> surplus;
  std::vector<absl::AnyInvocable<void()>> on_idle;
  {
    MutexLock lock(&mu_);
    if (part->previous != nullptr) {
      part->previous->next = part->next;
    } else {
      first_ = part->next;
    }
    if (part->next != nullptr) part->next->previous = part->previous;
    part->left = true;
    if (part->pins == 0) {
      owner = std::move(part->owner);
      surplus = Recycle(part);
    }
    if (ended) CountEnd(&on_idle);
  }
  for (auto& idle : on_idle) idle();
}

void RunningParts::Ended() {
  std::vector<absl::AnyInvocable<void()>> on_idle;
  {
    MutexLock lock(&mu_);
    CountEnd(&on_idle);
  }
  for (auto& idle : on_idle) idle();
}

void RunningParts::Close(const Status& refused, const Status& cancelled, absl::AnyInvocable<void()> idle) {
  std::vector<ActivePart*> running;
  {
    MutexLock lock(&mu_);
    if (refused_.ok()) refused_ = refused;
    if (active_ > 0) on_idle_.push_back(std::exchange(idle, nullptr));
    for (ActivePart* part = first_; part != nullptr; part = part->next) {
      ++part->pins;
      running.push_back(part);
    }
  }
  // Cancelling runs callbacks of waiters, so it happens without the lock. The pin keeps the run's memory and the step's
  // cancellation alive; the run itself may end meanwhile, even on this thread.
  for (ActivePart* part : running) {
    part->cancellation->StartCancel(cancelled);
    std::shared_ptr<void> owner;
    std::unique_ptr<ActivePart> surplus;
    MutexLock lock(&mu_);
    if (--part->pins == 0 && part->left) {
      owner = std::move(part->owner);
      surplus = Recycle(part);
    }
  }
  if (idle != nullptr) idle();
}

Status RunningParts::status() const {
  MutexLock lock(&mu_);
  return refused_;
}

std::vector<RunningPart> RunningParts::List() const {
  std::vector<RunningPart> parts;
  MutexLock lock(&mu_);
  for (const ActivePart* part = first_; part != nullptr; part = part->next) {
    parts.push_back({.step_id = part->step_id, .session = part->session->handle(), .since = part->since});
  }
  return parts;
}

bool RunningParts::empty() const {
  MutexLock lock(&mu_);
  return first_ == nullptr;
}

}  // namespace millrace
