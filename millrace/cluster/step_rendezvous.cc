#include "millrace/cluster/step_rendezvous.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/cluster/remote_worker.h"

namespace millrace {
namespace {

absl::string_view TaskOf(absl::string_view device) {
  const size_t at = device.find("/device:");
  return at == absl::string_view::npos ? absl::string_view() : device.substr(0, at);
}

}  // namespace

absl::string_view TensorName(absl::string_view tensor) {
  if (!absl::ConsumePrefix(&tensor, "edge_")) return tensor;
  const size_t at = tensor.find('_');
  return at == absl::string_view::npos ? tensor : tensor.substr(at + 1);
}

StatusOr<ParsedKey> ParsedKey::Parse(absl::string_view key) {
  const std::vector<absl::string_view> parts = absl::StrSplit(key, ';');
  ParsedKey parsed;
  const auto bad = [&] { return InvalidArgument("'", key, "' is no rendezvous key"); };
  if (parts.size() != 5) return bad();
  parsed.send_device = parts[0];
  parsed.recv_device = parts[2];
  parsed.tensor = parts[3];
  parsed.send_task = TaskOf(parsed.send_device);
  parsed.recv_task = TaskOf(parsed.recv_device);
  if (parts[1].size() != 16 || !absl::SimpleHexAtoi(parts[1], &parsed.incarnation)) return bad();
  if (parsed.send_task.empty() || parsed.recv_task.empty() || parsed.tensor.empty()) return bad();
  const std::pair<absl::string_view, absl::string_view> frame = absl::StrSplit(parts[4], absl::MaxSplits(':', 1));
  uint64_t id = 0;
  int64_t iteration = 0;
  if (!absl::SimpleAtoi(frame.first, &id) || !absl::SimpleAtoi(frame.second, &iteration)) return bad();
  return parsed;
}

void StepRendezvous::Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats, std::shared_ptr<const ReceiveGroups> groups) {
  MutexLock lock(&mu_);
  peers_ = std::move(peers);
  stats_ = stats;
  groups_ = std::move(groups);
}

void StepRendezvous::Detach() {
  MutexLock lock(&mu_);
  stats_ = nullptr;
}

void StepRendezvous::Recv(absl::string_view key, Done done) {
  StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  if (!parsed.ok()) return done(parsed.status());
  // What the client feeds is here, whichever task it came through.
  if (parsed->send_task == parsed->recv_task) {
    const uint64_t wait = waits_->Begin(std::string(parsed->tensor), "a tensor of the client", step_id_);
    return local_.Recv(key, [this, self = ShareRef(this), wait, done = std::move(done)](StatusOr<RendezvousItem> item) mutable {
      waits_->End(wait);
      done(std::move(item));
    });
  }
  const Peer* peer = nullptr;
  std::shared_ptr<const PeerSet> peers;
  bool comes_in_group = false;
  bool came = false;
  StatusOr<RendezvousItem> result;
  {
    MutexLock lock(&mu_);
    if (const int line = FindLine(parsed->send_task); line >= 0) {
      if (!RecvFrom(&lines_[line], &in_loops_[key], key, &done, &result)) return;
      in_loops_.erase(key);
      came = true;
    }
    peers = peers_;
    comes_in_group = groups_ != nullptr && groups_->keys.contains(key);
  }
  if (came) return done(std::move(result));
  if (comes_in_group) return local_.Recv(key, std::move(done));
  if (peers != nullptr && parsed->send_task == peers->self()) return local_.Recv(key, std::move(done));
  if (peers != nullptr) peer = peers->Find(parsed->send_task);
  if (peer == nullptr) {
    return done(InvalidArgument("tensor ", parsed->tensor, " is to come from ", parsed->send_task,
                                ", which is no task of this cluster"));
  }
  RecvRemote(std::move(peers), peer, key, std::move(done));
}

void NoteTransfer(StepStatsCollector* stats, absl::string_view key, const RendezvousItem& item, int64_t start_nanos, int64_t end_nanos) {
  const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  if (!parsed.ok() || parsed->send_task == parsed->recv_task) return;  // what the client feeds comes with the call
  stats->RecordTransfer({.tensor = std::string(TensorName(parsed->tensor)),
                         .from = std::string(parsed->send_device),
                         .to = std::string(parsed->recv_device),
                         .bytes = item.is_dead ? 0 : static_cast<int64_t>(item.tensor.TotalBytes()),
                         .start_nanos = start_nanos,
                         .end_nanos = end_nanos,
                         .sent_micros = item.sent_micros});
}

namespace {

// What the sender's step failed with is told by that task itself; here it is hearsay.
Status Hearsay(const Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsAborted(status) ? status : MarkDerived(status);
}

}  // namespace

void StepRendezvous::Enlist(Fetch* fetch) {
  fetch->next = fetching_;
  if (fetching_ != nullptr) fetching_->previous = fetch;
  fetching_ = fetch;
}

void StepRendezvous::Strike(Fetch* fetch) {
  if (fetch->previous != nullptr) {
    fetch->previous->next = fetch->next;
  } else {
    fetching_ = fetch->next;
  }
  if (fetch->next != nullptr) fetch->next->previous = fetch->previous;
}

void StepRendezvous::RecvRemote(std::shared_ptr<const PeerSet> peers, const Peer* peer, absl::string_view key, Done done) {
  auto fetch = std::make_unique<Fetch>(Fetch{.peers = std::move(peers), .peer = peer, .key = std::string(key), .since = waits_->Now(), .done = std::move(done)});
  StepStatsCollector* stats = nullptr;
  {
    MutexLock lock(&mu_);
    stats = stats_;
    Enlist(fetch.get());
  }
  const std::string& text = fetch->key;  // there until the answer is
  const int64_t start = stats == nullptr ? 0 : stats->NowNanos();
  WorkerInterface* const worker = peer->worker.get();
  worker->RecvTensor({.cancellation = &fetches_}, step_id_, text,
                     [this, self = ShareRef(this), fetch = std::move(fetch), stats, start](StatusOr<RendezvousItem> item) mutable {
                       OnFetched(std::move(fetch), std::move(item), stats, start);
                     });
}

void StepRendezvous::OnFetched(std::unique_ptr<Fetch> fetch, StatusOr<RendezvousItem> item, StepStatsCollector* stats, int64_t start_nanos) {
  {
    MutexLock lock(&mu_);
    Strike(fetch.get());
  }
  // Before the kernel hears of it: it may be the last, and with it the statistics go.
  if (stats != nullptr && item.ok()) NoteTransfer(stats, fetch->key, *item, start_nanos, stats->NowNanos());
  if (!item.ok()) return fetch->done(Hearsay(item.status()));
  fetch->done(std::move(item));
}

void StepRendezvous::FetchGroups() {
  std::shared_ptr<const PeerSet> peers;
  std::shared_ptr<const ReceiveGroups> groups;
  int64_t start = 0;
  {
    MutexLock lock(&mu_);
    if (groups_ == nullptr) return;
    peers = peers_;
    groups = groups_;
    if (stats_ != nullptr) start = stats_->NowNanos();
  }
  for (const ReceiveGroup& group : groups->groups) {
    {
      MutexLock lock(&mu_);
      if (FindLine(group.task) >= 0) continue;
    }
    const Peer* const peer = peers->Find(group.task);
    if (peer == nullptr) return Abort(InvalidArgument("tensors are to come from ", group.task, ", which is no task of this cluster"));
    auto fetch = std::make_unique<Fetch>(Fetch{.peers = peers, .peer = peer, .groups = groups, .group = &group, .since = waits_->Now()});
    {
      MutexLock lock(&mu_);
      Enlist(fetch.get());
    }
    peer->worker->RecvTensors({.cancellation = &fetches_}, step_id_, group.keys,
                              [this, self = ShareRef(this), fetch = std::move(fetch), start](StatusOr<std::vector<RendezvousItem>> items) mutable {
                                OnGroupFetched(std::move(fetch), std::move(items), start);
                              });
  }
}

void StepRendezvous::OnGroupFetched(std::unique_ptr<Fetch> fetch, StatusOr<std::vector<RendezvousItem>> items, int64_t start_nanos) {
  const absl::Span<const std::string> keys = fetch->keys();
  {
    MutexLock lock(&mu_);
    Strike(fetch.get());
    // The kernels may be gone when the step was aborted; with the step detached, so are the statistics.
    for (size_t i = 0; stats_ != nullptr && items.ok() && i < keys.size(); ++i) NoteTransfer(stats_, keys[i], (*items)[i], start_nanos, stats_->NowNanos());
  }
  if (!items.ok()) return Abort(Hearsay(items.status()));
  for (size_t i = 0; i < keys.size(); ++i) (void)local_.Send(keys[i], std::move((*items)[i]));
}

void StepRendezvous::Abort(Status why) {
  local_.Abort(why);
  AbortLines(why);
  fetches_.StartCancel(std::move(why));
}

void StepRendezvous::ListAwaited(std::vector<Awaited>* peers) {
  const size_t first = peers->size();
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    const Peer& peer = *fetch->peer;
    const auto same = [&](const Awaited& awaited) { return awaited.worker == peer.worker; };
    if (std::any_of(peers->begin() + first, peers->end(), same)) continue;
    const StatusOr<ParsedKey> key = ParsedKey::Parse(fetch->keys()[0]);
    peers->push_back({.task = peer.name, .address = peer.address, .worker = peer.worker, .incarnation = key.ok() ? key->incarnation : 0});
  }
  for (size_t i = 0; i < lines_.size() && peers_ != nullptr; ++i) {
    if (lines_[i].awaited == 0) continue;
    const StepEdges::Task& task = edges_->tasks[i];
    const Peer* const peer = peers_->Find(task.name);
    const auto same = [&](const Awaited& awaited) { return awaited.worker == peer->worker; };
    if (peer == nullptr || std::any_of(peers->begin() + first, peers->end(), same)) continue;
    peers->push_back({.task = peer->name, .address = peer->address, .worker = peer->worker, .incarnation = task.incarnation});
  }
}

void StepRendezvous::ListWaits(std::vector<Wait>* waits) {
  const auto add = [&](absl::string_view text, const std::string& task, absl::Time since) {
    const StatusOr<ParsedKey> key = ParsedKey::Parse(text);
    if (!key.ok()) return;
    const std::string tensor(TensorName(key->tensor));
    waits->push_back({.node = tensor,
                      .what = absl::StrCat("this tensor from ", task),
                      .step_id = step_id_,
                      .since = since,
                      .kind = Wait::Kind::kTensor,
                      .peer = task,
                      .tensor = tensor});
  };
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    for (const std::string& text : fetch->keys()) add(text, fetch->peer->name, fetch->since);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const StepEdge& edge = edges_->edges[i];
    if (slots_[i].state == Slot::State::kAwaited) add(edge.key, edges_->tasks[edge.task].name, slots_[i].since);
  }
  for (const auto& [key, slot] : in_loops_) {
    const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
    if (slot.state == Slot::State::kAwaited && parsed.ok()) add(key, std::string(parsed->send_task), slot.since);
  }
}

bool StepRendezvous::AbortIfAwaiting(const std::string& task, const Status& why) {
  bool awaits = false;
  {
    MutexLock lock(&mu_);
    for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) awaits |= fetch->peer->name == task;
    for (size_t i = 0; i < lines_.size(); ++i) awaits |= lines_[i].awaited > 0 && edges_->tasks[i].name == task;
  }
  if (awaits) Abort(why);
  return awaits;
}

bool StepRendezvous::HasWaiters() {
  if (local_.HasWaiters()) return true;
  MutexLock lock(&mu_);
  return fetching_ != nullptr || std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.awaited > 0; });
}

}  // namespace millrace
