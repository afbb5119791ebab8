#include "millrace/cluster/step_rendezvous.h"

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

void StepRendezvous::Attach(std::shared_ptr<const PeerSet> peers, std::shared_ptr<const ReceiveGroups> groups) {
  MutexLock lock(&mu_);
  peers_ = std::move(peers);
  groups_ = std::move(groups);
}

void StepRendezvous::FetchGroups() {
  std::shared_ptr<const PeerSet> peers;
  std::shared_ptr<const ReceiveGroups> groups;
  {
    MutexLock lock(&mu_);
    peers = peers_;
    groups = groups_;
  }
  if (groups == nullptr) return;
  for (const ReceiveGroup& group : groups->groups) {
    const Peer* const peer = peers->Find(group.task);
    if (peer == nullptr) return Abort(InvalidArgument("tensors are to come from ", group.task, ", which is no task of this cluster"));
    FetchGroup(*peer, group);
  }
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
  bool is_fetched = false;
  {
    MutexLock lock(&mu_);
    peers = peers_;
    is_fetched = groups_ != nullptr && groups_->keys.contains(key);
  }
  if (is_fetched) return local_.Recv(key, std::move(done));
  if (peers != nullptr && parsed->send_task == peers->self()) return local_.Recv(key, std::move(done));
  if (peers != nullptr) peer = peers->Find(parsed->send_task);
  if (peer == nullptr) {
    return done(InvalidArgument("tensor ", parsed->tensor, " is to come from ", parsed->send_task,
                                ", which is no task of this cluster"));
  }
  RecvRemote(*peer, *parsed, key, std::move(done));
}

uint64_t StepRendezvous::BeginFetch(const Peer& peer, const ParsedKey& key, size_t more) {
  {
    MutexLock lock(&mu_);
    Fetching& fetching = fetching_[peer.name];
    ++fetching.count;
    fetching.incarnation = key.incarnation;
  }
  return waits_->Begin(std::string(TensorName(key.tensor)),
                       more == 0 ? absl::StrCat("this tensor from ", peer.name) : absl::StrCat("this tensor and ", more, " others from ", peer.name), step_id_);
}

void StepRendezvous::EndFetch(const std::string& task, uint64_t wait) {
  waits_->End(wait);
  MutexLock lock(&mu_);
  const auto it = fetching_.find(task);
  if (--it->second.count == 0) fetching_.erase(it);
}

void StepRendezvous::RecvRemote(const Peer& peer, const ParsedKey& key, absl::string_view text, Done done) {
  const uint64_t wait = BeginFetch(peer, key, 0);
  peer.worker->RecvTensor(
      {.cancellation = &fetches_}, step_id_, std::string(text),
      [this, self = ShareRef(this), task = peer.name, wait, done = std::move(done)](StatusOr<RendezvousItem> item) mutable {
        EndFetch(task, wait);
        // What the sender's step failed with is told by that task itself; here it is hearsay.
        if (!item.ok() && !absl::IsUnavailable(item.status()) && !absl::IsAborted(item.status())) {
          return done(MarkDerived(item.status()));
        }
        done(std::move(item));
      });
}

void StepRendezvous::FetchGroup(const Peer& peer, const ReceiveGroup& group) {
  const StatusOr<ParsedKey> first = ParsedKey::Parse(group.keys[0]);
  if (!first.ok()) return Abort(first.status());
  const uint64_t wait = BeginFetch(peer, *first, group.keys.size() - 1);
  std::shared_ptr<const ReceiveGroups> groups;
  {
    MutexLock lock(&mu_);
    groups = groups_;
  }
  peer.worker->RecvTensors({.cancellation = &fetches_}, step_id_, group.keys,
                           [this, self = ShareRef(this), task = peer.name, wait, groups, &keys = group.keys](StatusOr<std::vector<RendezvousItem>> items) {
                             EndFetch(task, wait);
                             if (!items.ok()) {
                               const bool own = absl::IsUnavailable(items.status()) || absl::IsAborted(items.status());
                               return Abort(own ? items.status() : MarkDerived(items.status()));
                             }
                             for (size_t i = 0; i < keys.size(); ++i) (void)local_.Send(keys[i], std::move((*items)[i]));
                           });
}

void StepRendezvous::Abort(Status why) {
  local_.Abort(why);
  fetches_.StartCancel(std::move(why));
}

void StepRendezvous::ListAwaited(std::vector<Awaited>* peers) {
  MutexLock lock(&mu_);
  for (const auto& [task, fetching] : fetching_) {
    const Peer* peer = peers_->Find(task);
    peers->push_back({.task = task, .address = peer->address, .worker = peer->worker, .incarnation = fetching.incarnation});
  }
}

bool StepRendezvous::AbortIfAwaiting(const std::string& task, const Status& why) {
  {
    MutexLock lock(&mu_);
    if (!fetching_.contains(task)) return false;
  }
  Abort(why);
  return true;
}

bool StepRendezvous::HasWaiters() {
  if (local_.HasWaiters()) return true;
  MutexLock lock(&mu_);
  return !fetching_.empty();
}

}  // namespace millrace
