#include "millrace/task/running_parts.h"

#include <utility>

#include "millrace/base/log.h"
#include "millrace/task/task_session.h"

namespace millrace {
namespace {

// The number of idle ActiveParts to keep for a session; each holds the memory of an earlier run.
constexpr size_t kIdleParts = 16;

}  // namespace

RunningParts::~RunningParts() {
  MutexLock lock(&mu_);
  MR_CHECK(first_ == nullptr);
}

StatusOr<ActivePart*> RunningParts::Enter(Entry entry) {
  MutexLock lock(&mu_);
  if (!refused_.ok()) return refused_;
  std::vector<std::unique_ptr<ActivePart>>& idle = entry.session->idle_parts();
  ActivePart* part = nullptr;
  if (!idle.empty()) {
    part = idle.back().release();
    idle.pop_back();
  } else {
    part = new ActivePart(entry.session->memory());
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
  part->run = nullptr;
  part->previous = nullptr;
  part->next = first_;
  if (first_ != nullptr) first_->previous = part;
  first_ = part;
  return part;
}

std::unique_ptr<ActivePart> RunningParts::Recycle(ActivePart* part) {
  std::vector<std::unique_ptr<ActivePart>>& idle = part->session->idle_parts();
  if (idle.size() >= kIdleParts) return std::unique_ptr<ActivePart>(part);
  idle.emplace_back(part);
  return nullptr;
}

void RunningParts::TakeIfIdle(std::vector<absl::AnyInvocable<void()>>* on_idle) {
  if (first_ == nullptr && ending_.load() == 0) on_idle->swap(on_idle_);
}

void RunningParts::Leave(ActivePart* part, bool ended) {
  // Released without the lock.
  std::shared_ptr<void> owner;
  std::unique_ptr<ActivePart> surplus;
  std::vector<absl::AnyInvocable<void()>> on_idle;
  {
    MutexLock lock(&mu_);
    if (!ended) ending_.fetch_add(1);
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
    if (ended && !on_idle_.empty()) TakeIfIdle(&on_idle);
  }
  for (auto& idle : on_idle) idle();
}

void RunningParts::Ended() {
  if (ending_.fetch_sub(1) != 1 || !closed_.load()) return;
  std::vector<absl::AnyInvocable<void()>> on_idle;
  {
    MutexLock lock(&mu_);
    TakeIfIdle(&on_idle);
  }
  for (auto& idle : on_idle) idle();
}

void RunningParts::Close(const Status& refused, const Status& cancelled, absl::AnyInvocable<void()> idle) {
  std::vector<ActivePart*> running;
  {
    MutexLock lock(&mu_);
    if (refused_.ok()) refused_ = refused;
    closed_.store(true);
    if (first_ != nullptr || ending_.load() > 0) on_idle_.push_back(std::exchange(idle, nullptr));
    for (ActivePart* part = first_; part != nullptr; part = part->next) {
      ++part->pins;
      running.push_back(part);
    }
  }
  CancelPinned(running, cancelled);
  if (idle != nullptr) idle();
}

// Cancelling runs callbacks of waiters, so it happens without the lock. The pin keeps the run's memory and the step's
// cancellation alive; the run itself may end meanwhile, even on this thread.
void RunningParts::CancelPinned(const std::vector<ActivePart*>& pinned, const Status& why) {
  for (ActivePart* part : pinned) {
    part->cancellation->StartCancel(why);
    std::shared_ptr<void> owner;
    std::unique_ptr<ActivePart> ended;
    MutexLock lock(&mu_);
    if (--part->pins == 0 && part->left) {
      owner = std::move(part->owner);
      ended.reset(part);  // not recycled: its session may be gone
    }
  }
}

void RunningParts::SetRun(ActivePart* part, const RunRecord* run) {
  MutexLock lock(&mu_);
  part->run = run;
}

void RunningParts::CancelRun(const RunRecord& run, const Status& why) {
  CancelThose([&](const ActivePart& part) { return part.run == &run; }, why);
}

void RunningParts::CancelStep(int64_t step_id, const Status& why) {
  CancelThose([&](const ActivePart& part) { return part.step_id == step_id; }, why);
}

void RunningParts::CancelThose(absl::FunctionRef<bool(const ActivePart& part)> wanted, const Status& why) {
  std::vector<ActivePart*> pinned;
  {
    MutexLock lock(&mu_);
    for (ActivePart* part = first_; part != nullptr; part = part->next) {
      if (!wanted(*part)) continue;
      ++part->pins;
      pinned.push_back(part);
    }
  }
  CancelPinned(pinned, why);
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
