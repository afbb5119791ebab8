// How the members of a collective op exchange buffers once they agree.
#include <algorithm>
#include <utility>

#include "millrace/cluster/collectives/collective_run.h"
#include "millrace/cluster/collectives/exchange.h"
#include "millrace/cluster/collectives/task_collectives.h"

namespace millrace {
namespace {

// Work on fewer bytes takes less than some 100 us.
constexpr size_t kShortWork = 256 << 10;

void CountDown(int rank, absl::flat_hash_map<int, int>* counts) {
  const auto it = counts->find(rank);
  if (it != counts->end() && --it->second == 0) counts->erase(it);
}

}  // namespace

void CollectiveRun::Exchange() {
  Enter(Phase::kExchanging);
  if (finished()) return;
  Status status;
  switch (call_.kind) {
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
    case CollectiveKind::kReduceScatter:
      status = StartRing(shared_from_this());
      break;
    case CollectiveKind::kBroadcast:
      status = StartBroadcast(shared_from_this());
      break;
    case CollectiveKind::kAllToAll:
      status = StartAllToAll(shared_from_this());
      break;
  }
  if (!status.ok()) Finish(std::move(status));
}

void CollectiveRun::Send(int to, const std::string& key, net::Bytes bytes, absl::AnyInvocable<void()> then) {
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    ++sends_[to];
  }
  // Whoever takes it is watched as well: a member may have nothing to receive.
  if (group().member(to).task != scope_.task && task_->options().on_remote_wait != nullptr) {
    task_->options().on_remote_wait();
  }
  task_->exchange().Offer(step_id_, key, std::move(bytes),
                          [self = shared_from_this(), to, then = std::move(then)](Status status) mutable {
                            {
                              MutexLock lock(&self->mu_);
                              CountDown(to, &self->sends_);
                              if (self->done_ == nullptr) return;
                            }
                            if (!status.ok()) return self->Finish(std::move(status));
                            then();
                          });
}

void CollectiveRun::Receive(int from, const std::string& key, size_t size,
                            absl::AnyInvocable<void(const net::Bytes&)> then) {
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    ++receives_[from];
  }
  auto got = [self = shared_from_this(), from, then = std::move(then)](StatusOr<net::Bytes> bytes) mutable {
    {
      MutexLock lock(&self->mu_);
      CountDown(from, &self->receives_);
      if (self->done_ == nullptr) return;
    }
    if (!bytes.ok()) return self->Finish(bytes.status());
    then(*bytes);
  };
  const GroupMember& member = group().member(from);
  if (member.task == scope_.task) {
    task_->exchange().Ask({.step_id = step_id_,
                           .key = key,
                           .size = static_cast<int64_t>(size),
                           .receiver = device_.name(),
                           .scheduler = scheduler_},
                          std::move(got));
    return;
  }
  const StatusOr<const Peer*> peer = scope_.FindPeer(member.task);
  if (!peer.ok()) return Finish(peer.status());
  pb::RecvBufRequest request = BufferRequest(member, key);
  request.set_num_bytes(static_cast<int64_t>(size));
  const std::shared_ptr<PendingCall> call = BeginCall(**peer);
  if (call == nullptr) return;
  (*peer)->worker->RecvBuf({.cancellation = &call->cancellation}, request,
                           [self = shared_from_this(), call, device = member.device.name(), size,
                            got = std::move(got)](StatusOr<net::Bytes> bytes) mutable {
                             self->EndCall(call);
                             if (bytes.ok() && bytes->size() != size) {
                               bytes = InvalidArgument("Shape mismatch: device ", device, " gave ", bytes->size(),
                                                       " bytes, expected: ", size);
                             }
                             if (self->scheduler_ == nullptr) return got(std::move(bytes));
                             self->scheduler_->Schedule(
                                 [got = std::move(got), bytes = std::move(bytes)]() mutable { got(std::move(bytes)); });
                           });
}

void CollectiveRun::BeforeWork(size_t bytes) const {
  if (handover_ && bytes > kShortWork) handover_->HandOver();
}

void CollectiveRun::WatchTakers() {
  std::vector<int> ranks;
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr || phase_ != Phase::kExchanging) return;
    for (const auto& [rank, count] : sends_) {
      if (group().member(rank).task != scope_.task && watched_.insert(rank).second) ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  for (const int rank : ranks) {
    const GroupMember& member = group().member(rank);
    const StatusOr<const Peer*> peer = scope_.FindPeer(member.task);
    if (!peer.ok()) continue;
    // Asks for a buffer that nobody offers, so that the answer is the reason why the step has failed there.
    const pb::RecvBufRequest request = BufferRequest(member, absl::StrCat(buffer_prefix_, kWatchKey, rank_, ":", rank));
    const std::shared_ptr<PendingCall> call = BeginCall(**peer);
    if (call == nullptr) return;
    (*peer)->worker->RecvBuf({.cancellation = &call->cancellation}, request,
                             [self = shared_from_this(), call](const StatusOr<net::Bytes>& answer) {
                               self->EndCall(call);
                               if (!answer.ok()) self->Finish(answer.status());
                             });
  }
}

pb::RecvBufRequest CollectiveRun::BufferRequest(const GroupMember& member, const std::string& key) const {
  pb::RecvBufRequest request;
  request.set_step_id(step_id_);
  request.set_buf_rendezvous_key(key);
  request.set_src_device(member.device.name());
  request.set_src_incarnation(member.device.incarnation());
  request.set_dst_device(device_.name());
  return request;
}

}  // namespace millrace
