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

// What a person knows of "edge_12_layer1/read".
absl::string_view TensorName(absl::string_view tensor) {
  if (!absl::ConsumePrefix(&tensor, "edge_")) return tensor;
  const size_t at = tensor.find('_');
  return at == absl::string_view::npos ? tensor : tensor.substr(at + 1);
}

}  // namespace

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

void StepRendezvous::Attach(std::shared_ptr<const PeerSet> peers, StepStatsCollector* stats) {
  MutexLock lock(&mu_);
  peers_ = std::move(peers);
  stats_ = stats;
}

Status StepRendezvous::Send(absl::string_view key, RendezvousItem item) { return local_.Send(key, std::move(item)); }

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
  {
    MutexLock lock(&mu_);
    peers = peers_;
  }
  if (peers != nullptr && parsed->send_task == peers->self()) return local_.Recv(key, std::move(done));
  if (peers != nullptr) peer = peers->Find(parsed->send_task);
  if (peer == nullptr) {
    return done(InvalidArgument("tensor ", parsed->tensor, " is to come from ", parsed->send_task,
                                ", which is no task of this cluster"));
  }
  RecvRemote(std::move(peers), peer, key, std::move(done));
}

void StepRendezvous::RecvRemote(std::shared_ptr<const PeerSet> peers, const Peer* peer, absl::string_view key, Done done) {
  auto fetch = std::make_unique<Fetch>(Fetch{.peers = std::move(peers), .peer = peer, .key = std::string(key), .since = waits_->Now(), .done = std::move(done)});
  StepStatsCollector* stats = nullptr;
  {
    MutexLock lock(&mu_);
    stats = stats_;
    fetch->next = fetching_;
    if (fetching_ != nullptr) fetching_->previous = fetch.get();
    fetching_ = fetch.get();
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
    if (fetch->previous != nullptr) {
      fetch->previous->next = fetch->next;
    } else {
      fetching_ = fetch->next;
    }
    if (fetch->next != nullptr) fetch->next->previous = fetch->previous;
  }
  // Before the kernel hears of it: it may be the last, and with it the statistics go.
  if (stats != nullptr && item.ok()) {
    if (const StatusOr<ParsedKey> key = ParsedKey::Parse(fetch->key); key.ok()) {
      stats->RecordTransfer({.tensor = std::string(TensorName(key->tensor)),
                             .from = std::string(key->send_device),
                             .to = std::string(key->recv_device),
                             .bytes = item->is_dead ? 0 : static_cast<int64_t>(item->tensor.TotalBytes()),
                             .start_nanos = start_nanos,
                             .end_nanos = stats->NowNanos(),
                             .sent_micros = item->sent_micros});
    }
  }
  // What the sender's step failed with is told by that task itself; here it is hearsay.
  if (!item.ok() && !absl::IsUnavailable(item.status()) && !absl::IsAborted(item.status())) return fetch->done(MarkDerived(item.status()));
  fetch->done(std::move(item));
}

void StepRendezvous::Abort(Status why) {
  local_.Abort(why);
  fetches_.StartCancel(std::move(why));
}

void StepRendezvous::ListAwaited(std::vector<Awaited>* peers) {
  const size_t first = peers->size();
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    const Peer& peer = *fetch->peer;
    const auto same = [&](const Awaited& awaited) { return awaited.worker == peer.worker; };
    if (std::any_of(peers->begin() + first, peers->end(), same)) continue;
    const StatusOr<ParsedKey> key = ParsedKey::Parse(fetch->key);
    peers->push_back({.task = peer.name, .address = peer.address, .worker = peer.worker, .incarnation = key.ok() ? key->incarnation : 0});
  }
}

void StepRendezvous::ListWaits(std::vector<Wait>* waits) {
  MutexLock lock(&mu_);
  for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) {
    const StatusOr<ParsedKey> key = ParsedKey::Parse(fetch->key);
    if (!key.ok()) continue;
    const std::string tensor(TensorName(key->tensor));
    waits->push_back({.node = tensor,
                      .what = absl::StrCat("this tensor from ", fetch->peer->name),
                      .step_id = step_id_,
                      .since = fetch->since,
                      .kind = Wait::Kind::kTensor,
                      .peer = fetch->peer->name,
                      .tensor = tensor});
  }
}

bool StepRendezvous::AbortIfAwaiting(const std::string& task, const Status& why) {
  bool awaits = false;
  {
    MutexLock lock(&mu_);
    for (const Fetch* fetch = fetching_; fetch != nullptr; fetch = fetch->next) awaits |= fetch->peer->name == task;
  }
  if (awaits) Abort(why);
  return awaits;
}

bool StepRendezvous::HasWaiters() {
  if (local_.HasWaiters()) return true;
  MutexLock lock(&mu_);
  return fetching_ != nullptr;
}

}  // namespace millrace
