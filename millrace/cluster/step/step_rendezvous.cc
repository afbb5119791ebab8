#include "millrace/cluster/step/step_rendezvous.h"

#include <algorithm>
#include <utility>

namespace millrace {

StepRendezvous::~StepRendezvous() {
  if (lines_.HasWaiters()) lines_.Abort(Cancelled("the step has ended"));
}

void StepRendezvous::Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats,
                            std::shared_ptr<const ReceiveGroups> groups, RefPtr<ThreadHandover> handover) {
  lines_.SetStats(stats);
  pulled_.Use(stats, std::move(handover));
  MutexLock lock(&mu_);
  peers_ = std::move(peers);
  groups_ = std::move(groups);
}

void StepRendezvous::Detach() {
  lines_.SetStats(nullptr);
  pulled_.SetStats(nullptr);
}

void StepRendezvous::FetchGroups() {
  std::shared_ptr<const PeerSet> peers;
  std::shared_ptr<const ReceiveGroups> groups;
  {
    MutexLock lock(&mu_);
    if (groups_ == nullptr) return;
    peers = peers_;
    groups = groups_;
  }
  for (const ReceiveGroup& group : groups->groups) {
    if (lines_.LeadsTo(group.task)) continue;
    const Peer* const peer = peers->Find(group.task);
    if (peer == nullptr)
      return Abort(InvalidArgument("tensors are expected from ", group.task, ", which is not a task of this cluster"));
    pulled_.PullGroup(Self(), peers, peer, groups, &group,
                      [this, keys = absl::MakeConstSpan(group.keys)](StatusOr<std::vector<RendezvousItem>> items) {
                        if (!items.ok()) return Abort(items.status());
                        for (size_t i = 0; i < keys.size(); ++i) (void)local_.Send(keys[i], std::move((*items)[i]));
                      });
  }
}

Status StepRendezvous::Arrive(int task, SteppedTensors tensors) {
  const RefPtr<RefCounted> self = Self();  // a tensor may complete the step and thereby end it
  return lines_.Arrive(task, std::move(tensors));
}

Status StepRendezvous::Send(absl::string_view key, RendezvousItem item) {
  MR_ASSIGN_OR_RETURN(const bool sent, lines_.Send(key, &item));
  return sent ? absl::OkStatus() : local_.Send(key, std::move(item));
}

Status StepRendezvous::SendSlot(int slot, absl::string_view key, RendezvousItem item) {
  MR_ASSIGN_OR_RETURN(const bool sent, lines_.SendSlot(slot, key, &item));
  return sent ? absl::OkStatus() : local_.Send(key, std::move(item));
}

void StepRendezvous::RecvSlot(int slot, absl::string_view key, Done done) {
  if (!lines_.RecvSlot(slot, key, &done)) Recv(key, std::move(done));
}

void StepRendezvous::Recv(absl::string_view key, Done done) {
  StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  if (!parsed.ok()) return done(parsed.status());
  // A feed of the client is on this task, whichever task it came through.
  if (parsed->send_task == parsed->recv_task) {
    const uint64_t wait = waits_->Begin(std::string(parsed->tensor), "a tensor of the client", step_id_);
    return local_.Recv(key, [this, self = Self(), wait, done = std::move(done)](StatusOr<RendezvousItem> item) mutable {
      waits_->End(wait);
      done(std::move(item));
    });
  }
  if (lines_.Recv(key, parsed->send_task, &done)) return;
  std::shared_ptr<const PeerSet> peers;
  bool comes_in_group = false;
  {
    MutexLock lock(&mu_);
    peers = peers_;
    comes_in_group = groups_ != nullptr && groups_->keys.contains(key);
  }
  if (comes_in_group) return local_.Recv(key, std::move(done));
  if (peers != nullptr && parsed->send_task == peers->self()) return local_.Recv(key, std::move(done));
  const Peer* const peer = peers == nullptr ? nullptr : peers->Find(parsed->send_task);
  if (peer == nullptr) {
    return done(InvalidArgument("tensor ", parsed->tensor, " is expected from ", parsed->send_task,
                                ", which is not a task of this cluster"));
  }
  pulled_.Pull(Self(), std::move(peers), peer, key, std::move(done));
}

void StepRendezvous::Abort(Status why) {
  local_.Abort(why);
  lines_.Abort(why);
  pulled_.Abort(std::move(why));
}

void StepRendezvous::ListAwaited(std::vector<Awaited>* peers) {
  const size_t first = peers->size();
  pulled_.ListAwaited(first, peers);
  std::shared_ptr<const PeerSet> known;
  {
    MutexLock lock(&mu_);
    known = peers_;
  }
  if (known != nullptr) lines_.ListAwaited(*known, first, peers);
}

void StepRendezvous::ListWaits(std::vector<Wait>* waits) {
  pulled_.ListWaits(waits);
  lines_.ListWaits(waits);
}

bool StepRendezvous::AbortIfAwaiting(const Awaited& lost, const Status& why) {
  std::vector<Awaited> awaited;
  ListAwaited(&awaited);
  const bool awaits =
      std::any_of(awaited.begin(), awaited.end(), [&](const Awaited& waiting) { return EndsWait(lost, why, waiting); });
  if (awaits) Abort(why);
  return awaits;
}

}  // namespace millrace
