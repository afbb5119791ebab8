#include "millrace/cluster/step/pulled_tensors.h"

#include <algorithm>
#include <utility>

#include "millrace/cluster/worker/remote_worker.h"

namespace millrace {
namespace {

// The sending task reports the error of its part itself; an error that arrives this way is only derived.
Status Hearsay(const Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsAborted(status) ? status : MarkDerived(status);
}

}  // namespace

void PulledTensors::Use(StepStatsCollector* stats, RefPtr<ThreadHandover> handover) {
  MutexLock lock(&mu_);
  stats_ = stats;
  handover_ = std::move(handover);
}

void PulledTensors::SetStats(StepStatsCollector* stats) {
  MutexLock lock(&mu_);
  stats_ = stats;
}

CallControl PulledTensors::Begin(Fetch* fetch) {
  MutexLock lock(&mu_);
  fetch->stats = stats_;
  fetch->start_nanos = stats_ == nullptr ? 0 : stats_->NowNanos();
  fetch->next = fetching_;
  if (fetching_ != nullptr) fetching_->previous = fetch;
  fetching_ = fetch;
  return {.cancellation = &calls_, .handover = handover_};
}

void PulledTensors::End(Fetch* fetch) {
  if (fetch->previous != nullptr) {
    fetch->previous->next = fetch->next;
  } else {
    fetching_ = fetch->next;
  }
  if (fetch->next != nullptr) fetch->next->previous = fetch->previous;
}

void PulledTensors::Pull(RefPtr<RefCounted> keeper, std::shared_ptr<const PeerSet> peers, const Peer* peer,
                         absl::string_view key, Done done) {
  auto fetch = std::make_unique<Fetch>(
      Fetch{.peers = std::move(peers), .peer = peer, .since = waits_->Now(), .key = std::string(key)});
  const CallControl control = Begin(fetch.get());
  const std::string& text = fetch->key;  // valid until the answer
  peer->worker->RecvTensor(control, step_id_, text,
                           [this, keeper = std::move(keeper), fetch = std::move(fetch),
                            done = std::move(done)](StatusOr<RendezvousItem> item) mutable {
                             {
                               MutexLock lock(&mu_);
                               End(fetch.get());
                             }
                             if (!item.ok()) return done(Hearsay(item.status()));
                             // Before the kernel's callback: it may be the last one, after which the statistics no
                             // longer exist.
                             if (fetch->stats != nullptr)
                               NoteTransfer(fetch->stats, fetch->key, *item, fetch->start_nanos,
                                            fetch->stats->NowNanos());
                             done(std::move(item));
                           });
}

void PulledTensors::PullGroup(RefPtr<RefCounted> keeper, std::shared_ptr<const PeerSet> peers, const Peer* peer,
                              std::shared_ptr<const ReceiveGroups> groups, const ReceiveGroup* group, GroupDone done) {
  auto fetch = std::make_unique<Fetch>(Fetch{
      .peers = std::move(peers), .peer = peer, .since = waits_->Now(), .groups = std::move(groups), .group = group});
  const CallControl control = Begin(fetch.get());
  peer->worker->RecvTensors(control, step_id_, group->keys,
                            [this, keeper = std::move(keeper), fetch = std::move(fetch),
                             done = std::move(done)](StatusOr<std::vector<RendezvousItem>> items) mutable {
                              const absl::Span<const std::string> keys = fetch->keys();
                              {
                                MutexLock lock(&mu_);
                                End(fetch.get());
                                // If the step was aborted, the kernels may no longer exist; after its end the
                                // statistics do not either.
                                for (size_t i = 0; stats_ != nullptr && items.ok() && i < keys.size(); ++i)
                                  NoteTransfer(stats_, keys[i], (*items)[i], fetch->start_nanos, stats_->NowNanos());
                              }
                              if (!items.ok()) return done(Hearsay(items.status()));
                              done(std::move(items));
                            });
}

void PulledTensors::ListAwaited(size_t first, std::vector<Awaited>* peers) {
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    const Peer& peer = *fetch->peer;
    const auto same = [&](const Awaited& awaited) { return awaited.worker == peer.worker; };
    if (std::any_of(peers->begin() + first, peers->end(), same)) continue;
    const StatusOr<ParsedKey> key = ParsedKey::Parse(fetch->keys()[0]);
    peers->push_back({.task = peer.name,
                      .address = peer.address,
                      .worker = peer.worker,
                      .incarnation = key.ok() ? key->incarnation : 0});
  }
}

void PulledTensors::ListWaits(std::vector<Wait>* waits) {
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    for (const std::string& key : fetch->keys()) {
      if (Wait wait; DescribeTensorWait(key, fetch->peer->name, step_id_, fetch->since, &wait))
        waits->push_back(std::move(wait));
    }
  }
}

bool PulledTensors::Awaits(const std::string& task) {
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    if (fetch->peer->name == task) return true;
  }
  return false;
}

}  // namespace millrace
