#include "millrace/cluster/worker/step_table.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "millrace/base/fan_in.h"
#include "millrace/cluster/step/let_go.h"

namespace millrace {
namespace {

constexpr size_t kEndedSteps = 4096;
// A step whose master never ended it is forgotten after this time without activity.
constexpr absl::Duration kStaleStep = absl::Minutes(2);

}  // namespace

StepTable::StepTable(StepTableOptions options)
    : options_(std::move(options)), ended_(kEndedSteps), last_sweep_(options_.clock->Now()) {}

StepTable::Step& StepTable::FindOrAdd(int64_t step_id, RefPtr<StepRendezvous> fresh, absl::Time now) {
  Step& step = steps_[step_id];
  if (!step.rendezvous) {
    step.rendezvous = std::move(fresh);
    if (!going_down_.ok()) step.rendezvous->Abort(going_down_);
  }
  step.touched = now;
  return step;
}

RefPtr<StepRendezvous> StepTable::Find(int64_t step_id, bool keep, int new_receivers) {
  std::vector<RefPtr<StepRendezvous>> stale;  // let go of without the lock
  auto fresh = MakeRef<StepRendezvous>(step_id, options_.waits.get());
  const absl::Time now = options_.clock->Now();
  MutexLock lock(&mu_);
  TakeStale(now, &stale);
  if (ended_.Contains(step_id)) {
    fresh->Abort(AlreadyExists("step ", step_id, " is over on ", options_.task));
    return fresh;
  }
  Step& step = FindOrAdd(step_id, fresh, now);
  step.kept |= keep;
  step.receivers += new_receivers;
  return step.rendezvous;
}

void StepTable::Forget(int64_t step_id) {
  RefPtr<StepRendezvous> rendezvous;
  {
    MutexLock lock(&mu_);
    if (auto node = steps_.extract(step_id); !node.empty()) rendezvous = std::move(node.mapped().rendezvous);
    ended_.Insert(step_id);
  }
  static const Status* const kOver = new Status(Cancelled("the step has ended"));  // every step of a master ends here
  if (rendezvous) rendezvous->Abort(*kOver);
}

void StepTable::ForgetSession(const std::string& session, const Status& why) {
  if (session.empty()) return;
  std::map<int64_t, RefPtr<StepRendezvous>> steps;
  {
    MutexLock lock(&mu_);
    absl::erase_if(steps_, [&](auto& entry) {
      if (entry.second.session != session) return false;
      steps[entry.first] = std::move(entry.second.rendezvous);
      return true;
    });
    for (const auto& [id, step] : steps) ended_.Insert(id);
  }
  for (const auto& [id, step] : steps) step->Abort(why);
}

void StepTable::TakeStale(absl::Time now, std::vector<RefPtr<StepRendezvous>>* stale) {
  if (now - last_sweep_ < kStaleStep / 4) return;
  last_sweep_ = now;
  absl::erase_if(steps_, [&](auto& entry) {
    Step& step = entry.second;
    if (step.running || step.kept || now - step.touched <= kStaleStep || step.receivers > 0) return false;
    stale->push_back(std::move(step.rendezvous));
    return true;
  });
}

StatusOr<RefPtr<StepRendezvous>> StepTable::BeginRun(int64_t step_id, const std::string& session) {
  std::vector<RefPtr<StepRendezvous>> stale;  // let go of without the lock
  auto fresh = MakeRef<StepRendezvous>(step_id, options_.waits.get());
  const absl::Time now = options_.clock->Now();
  MutexLock lock(&mu_);
  TakeStale(now, &stale);
  if (ended_.Contains(step_id)) {
    return AlreadyExists("step ", step_id, " has run on ", options_.task, " or was given up");
  }
  Step& step = FindOrAdd(step_id, std::move(fresh), now);
  // A duplicate request must not run twice.
  if (!step.session.empty()) return AlreadyExists("step ", step_id, " runs on ", options_.task, " already");
  step.session = session.empty() ? "legacy" : session;
  step.running = true;
  return step.rendezvous;
}

void StepTable::NoteRan(int64_t step_id, const StepRendezvous& rendezvous, bool went_well) {
  const absl::Time now = options_.clock->Now();
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  if (it == steps_.end()) return;
  it->second.running = false;
  it->second.went_well = went_well;
  it->second.touched = now;
  if (went_well && rendezvous.IsEmpty()) {
    steps_.erase(it);  // the caller holds the rendezvous
    ended_.Insert(step_id);
  }
}

void StepTable::OnReceiverGone(int64_t step_id, const StepRendezvous* rendezvous, bool gave_up) {
  RefPtr<StepRendezvous> forgotten;  // released without the lock
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  if (it == steps_.end() || it->second.rendezvous.get() != rendezvous) return;
  Step& step = it->second;
  --step.receivers;
  if (step.went_well && step.rendezvous->IsEmpty()) {
    ended_.Insert(step_id);
  } else if (!gave_up || step.receivers > 0 || step.kept || !step.session.empty()) {
    return;
  }
  forgotten = std::move(step.rendezvous);
  steps_.erase(it);
}

void StepTable::Recv(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                     WorkerInterface::Done<std::vector<RendezvousItem>> done) {
  const RefPtr<StepRendezvous> rendezvous = Find(step_id, /*keep=*/false, 1);
  // A caller that gives up ends only its own wait; the step may continue for others. The state is shared, since both
  // the tensors and the cancellation may arrive.
  struct Waiting : RefCounted {
    std::vector<RendezvousItem> items;
    WorkerInterface::Done<std::vector<RendezvousItem>> done;
    std::optional<FanIn> all;
  };
  RefPtr<Waiting> waiting = MakeRef<Waiting>();
  waiting->items.resize(keys.size());
  waiting->done = std::move(done);
  CancellationManager* const cancellation = control.cancellation;
  const CancellationManager::Token token = cancellation != nullptr ? cancellation->NewToken() : 0;
  // The rendezvous holds the callbacks that end this, so these refer to it by its address only.
  waiting->all.emplace(keys.size(), [self = shared_from_this(), step_id, where = rendezvous.get(), w = waiting.get(),
                                     cancellation, token](Status status) {
    if (cancellation != nullptr) LetGo(cancellation, token);
    self->OnReceiverGone(step_id, where, /*gave_up=*/false);
    status.ok() ? w->done(std::move(w->items)) : w->done(std::move(status));
  });
  if (cancellation != nullptr) {
    const bool registered = cancellation->Register(token, [self = shared_from_this(), step_id, rendezvous, waiting] {
      if (!waiting->all->Cancel()) return;
      self->OnReceiverGone(step_id, rendezvous.get(), /*gave_up=*/true);
      waiting->done(Cancelled("the receiver gave up"));
    });
    if (!registered) {
      OnReceiverGone(step_id, rendezvous.get(), /*gave_up=*/true);
      return waiting->done(cancellation->status());
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    rendezvous->RecvLocal(keys[i], [waiting, i](StatusOr<RendezvousItem> item) {
      if (!item.ok()) return waiting->all->Fail(item.status());
      waiting->items[i] = *std::move(item);
      waiting->all->Arrive();
    });
  }
}

void StepTable::Shutdown(const Status& why) {
  {
    MutexLock lock(&mu_);
    going_down_ = why;
  }
  for (const RefPtr<StepRendezvous>& step : Rendezvous()) step->Abort(why);
}

void StepTable::Clear() {
  absl::flat_hash_map<int64_t, Step> steps;  // waiters are notified without the lock
  MutexLock lock(&mu_);
  steps.swap(steps_);
}

std::vector<int64_t> StepTable::List() const {
  std::vector<int64_t> ids;
  MutexLock lock(&mu_);
  for (const auto& [id, step] : steps_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<RefPtr<StepRendezvous>> StepTable::Rendezvous() const {
  std::map<int64_t, RefPtr<StepRendezvous>> ordered;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, step] : steps_) ordered[id] = step.rendezvous;
  }
  std::vector<RefPtr<StepRendezvous>> all;
  for (auto& [id, rendezvous] : ordered) all.push_back(std::move(rendezvous));
  return all;
}

}  // namespace millrace
