#include "millrace/cluster/collectives/collective_run.h"

#include <algorithm>
#include <utility>

#include "millrace/cluster/collectives/exchange.h"
#include "millrace/cluster/collectives/task_collectives.h"
#include "millrace/cluster/step/let_go.h"

namespace millrace {
namespace {

// Work on fewer bytes takes less than some 100 us.
constexpr size_t kShortWork = 256 << 10;

pb::DeviceAttributes AttributesOf(const Device& device) {
  pb::DeviceAttributes attributes;
  attributes.set_name(device.name());
  attributes.set_device_type(device.type());
  attributes.mutable_locality();
  attributes.set_incarnation(device.incarnation());
  return attributes;
}

// `counts` has the members of whom something is awaited.
std::string FirstDevice(const DeviceGroup& group, const absl::flat_hash_map<int, int>& counts) {
  int first = group.size();
  for (const auto& [rank, count] : counts) first = std::min(first, rank);
  return first < group.size() ? group.member(first).device.name() : "";
}

void CountDown(int rank, absl::flat_hash_map<int, int>* counts) {
  const auto it = counts->find(rank);
  if (it != counts->end() && --it->second == 0) counts->erase(it);
}

}  // namespace

CollectiveRun::CollectiveRun(std::shared_ptr<TaskCollectives> task, CollectiveScope scope, KernelContext& ctx,
                             CollectiveCall call, bool join_only, CollectiveExecutor::Done done)
    : task_(std::move(task)),
      scope_(std::move(scope)),
      call_(std::move(call)),
      join_only_(join_only),
      node_(ctx.node().name()),
      device_(AttributesOf(*ctx.device())),
      step_id_(task_->CollectiveStep(ctx.step().step_id)),
      cancellation_(ctx.cancellation()),
      waits_(ctx.step().waits),
      scheduler_(ctx.step().inter_op),
      handover_(ctx.step().handover == nullptr ? nullptr : ShareRef(ctx.step().handover)),
      buffer_prefix_(absl::StrCat(call_.group.key, ":", call_.instance_key, ":", ctx.frame_id(), ":", ctx.iteration())),
      done_(std::move(done)) {}

void CollectiveRun::Start() {
  const std::shared_ptr<CollectiveRun> self = shared_from_this();
  if (waits_ != nullptr) {
    const uint64_t wait = waits_->Begin({.node = node_, .step_id = step_id_, .kind = Wait::Kind::kPeer},
                                        [weak = weak_from_this()](Wait* listed) {
                                          if (const auto run = weak.lock()) listed->what = run->Describe();
                                        });
    MutexLock lock(&mu_);
    wait_ = wait;
  }
  if (cancellation_ != nullptr) {
    const CancellationManager::Token token = cancellation_->NewToken();
    {
      MutexLock lock(&mu_);
      token_ = token;
    }
    const bool registered = cancellation_->Register(token, [self] { self->Finish(self->CancelledStatus()); });
    if (!registered) return Finish(CancelledStatus());
  }
  Enter(Phase::kJoining);
  if (RestoreAgreement()) return Exchange();
  Join();
}

Status CollectiveRun::CancelledStatus() const {
  return Cancelled("the collective op was cancelled while it waited for ", Describe());
}

bool CollectiveRun::finished() const {
  MutexLock lock(&mu_);
  return done_ == nullptr;
}

void CollectiveRun::Enter(Phase phase) {
  TimerQueue::Id previous = 0;
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    phase_ = phase;
    // One limit for the two phases in which the members agree.
    if (phase != Phase::kAgreeing) previous = std::exchange(timer_, 0);
  }
  if (phase == Phase::kAgreeing && task_->options().on_remote_wait != nullptr) task_->options().on_remote_wait();
  if (previous != 0) task_->options().timers->Cancel(previous);
  if (phase == Phase::kAgreeing || call_.timeout == absl::InfiniteDuration()) return;
  const TimerQueue::Id timer = task_->options().timers->Schedule(call_.timeout, [weak = weak_from_this(), phase] {
    if (const auto run = weak.lock()) run->OnTimeLimit(phase);
  });
  bool late = false;
  {
    MutexLock lock(&mu_);
    late = done_ == nullptr;
    if (!late) timer_ = timer;
  }
  if (late) task_->options().timers->Cancel(timer);
}

void CollectiveRun::OnTimeLimit(Phase phase) {
  {
    MutexLock lock(&mu_);
    if (phase == Phase::kJoining ? phase_ == Phase::kExchanging : phase_ != phase) return;
    timer_ = 0;  // it cannot be cancelled from its own closure
  }
  Status status = DeadlineExceeded(phase == Phase::kExchanging ? "Collective has timed out during execution."
                                                               : "Collective has timed out waiting for other workers.",
                                   " It waited ", absl::FormatDuration(call_.timeout), " for ", Describe());
  if (scheduler_ == nullptr) return Finish(std::move(status));
  scheduler_->Schedule([self = shared_from_this(), status = std::move(status)] { self->Finish(status); });
}

bool CollectiveRun::RestoreAgreement() {
  if (call_.memory == nullptr || join_only_) return false;
  const auto agreement = std::static_pointer_cast<const Agreement>(call_.memory->Get());
  if (agreement == nullptr) return false;
  // It is void if the group was formed again.
  const StatusOr<JoinedGroup> now = scope_.groups->Find(call_.group.key);
  if (!now.ok() || now->group != agreement->joined.group) return false;
  joined_ = agreement->joined;
  rank_ = joined_.group->RankOf(device_.name());
  source_rank_ = agreement->source_rank;
  return rank_ >= 0;
}

void CollectiveRun::Join() {
  const StatusOr<JoinedGroup> known = scope_.groups->Find(call_.group.key);
  if (call_.group.must_be_joined) {
    if (known.ok()) return OnJoined(*known);
    return Finish(FailedPrecondition("Group ", call_.group.key,
                                     " is not initialized. Please call group initialization op first before invoking "
                                     "collective op."));
  }
  if (scope_.leads() || known.ok()) return JoinHere();
  JoinAtLeader();
}

void CollectiveRun::JoinHere() {
  const uint64_t waiter = scope_.groups->Join({.key = call_.group.key,
                                               .size = call_.group.size,
                                               .device_type = device_.device_type(),
                                               .device = device_,
                                               .chosen_rank = call_.group.rank},
                                              [self = shared_from_this()](StatusOr<JoinedGroup> joined) {
                                                if (!joined.ok()) return self->Finish(joined.status());
                                                self->OnJoined(*std::move(joined));
                                              });
  if (waiter == 0) return;
  bool late = false;
  {
    MutexLock lock(&mu_);
    group_waiter_ = waiter;
    late = done_ == nullptr;
  }
  if (late) scope_.groups->Leave(call_.group.key, waiter, Cancelled("the op has ended"));
}

void CollectiveRun::JoinAtLeader() {
  const StatusOr<const Peer*> leader = scope_.FindPeer(scope_.leader);
  if (!leader.ok()) return Finish(leader.status());
  pb::CompleteGroupRequest request;
  request.set_group_key(call_.group.key);
  request.set_group_size(call_.group.size);
  request.set_device_type(device_.device_type());
  request.set_collective_type(static_cast<int>(call_.kind));
  *request.mutable_device_attributes() = device_;
  const std::shared_ptr<PendingCall> call = BeginCall(**leader);
  if (call == nullptr) return;
  (*leader)->worker->CompleteGroup(
      {.cancellation = &call->cancellation}, request,
      [self = shared_from_this(), call](StatusOr<pb::CompleteGroupResponse> response) {
        self->EndCall(call);
        if (!response.ok()) return self->Finish(response.status());
        std::vector<GroupMember> members;
        for (pb::DeviceAttributes& device : *response->mutable_device_attributes())
          members.push_back({.device = std::move(device)});
        const int32_t key = self->call_.group.key;
        if (response->group_key() != key || static_cast<int>(members.size()) != self->call_.group.size) {
          return self->Finish(Internal("the leader ", self->scope_.leader, " answered with group ",
                                       response->group_key(), " of ", members.size(), " devices for group ", key,
                                       " of ", self->call_.group.size));
        }
        StatusOr<std::shared_ptr<const DeviceGroup>> group =
            DeviceGroup::Make(key, response->device_type(), std::move(members));
        if (!group.ok()) return self->Finish(group.status());
        self->scope_.groups->Put(*std::move(group));
        self->JoinHere();
      });
}

void CollectiveRun::OnJoined(JoinedGroup joined) {
  if (finished()) return;
  joined_ = std::move(joined);
  rank_ = joined_.group->RankOf(device_.name());
  if (rank_ < 0) {
    return Finish(Internal("Device ", device_.name(), " is not a member of group ", call_.group.key));
  }
  if (join_only_) return Finish(absl::OkStatus());
  Enter(Phase::kAgreeing);
  Agree();
}

InstanceRequest CollectiveRun::Instance() const {
  return {.instance_key = call_.instance_key,
          .kind = call_.kind,
          .dtype = call_.dtype,
          .shape = call_.shape,
          .device = device_.name(),
          .is_source = call_.is_source};
}

void CollectiveRun::Agree() {
  const InstanceRequest request = Instance();
  if (!scope_.leads()) {
    StatusOr<int> known;
    if (!joined_.instances->Find(request, &known)) return AgreeAtLeader(request);
    return known.ok() ? OnAgreed(*known) : Finish(known.status());
  }
  const uint64_t waiter =
      joined_.instances->Resolve(request, [self = shared_from_this()](const StatusOr<int>& source_rank) {
        if (!source_rank.ok()) return self->Finish(source_rank.status());
        self->OnAgreed(*source_rank);
      });
  if (waiter == 0) return;
  bool late = false;
  {
    MutexLock lock(&mu_);
    instance_waiter_ = waiter;
    late = done_ == nullptr;
  }
  if (late) joined_.instances->Leave(request, waiter, Cancelled("the op has ended"));
}

void CollectiveRun::AgreeAtLeader(InstanceRequest instance) {
  const StatusOr<const Peer*> leader = scope_.FindPeer(scope_.leader);
  if (!leader.ok()) return Finish(leader.status());
  pb::CompleteInstanceRequest request;
  request.set_name(node_);
  request.set_type(static_cast<int>(instance.kind));
  request.set_data_type(static_cast<pb::DataType>(instance.dtype));
  instance.shape.ToProto(request.mutable_shape());
  request.set_group_key(call_.group.key);
  request.set_group_size(group().size());
  request.set_instance_key(instance.instance_key);
  request.set_device_type(device_.device_type());
  for (const int offset : call_.subdiv_offsets) request.add_subdiv_offset(offset);
  request.set_device(instance.device);
  request.set_is_source(instance.is_source);
  const std::shared_ptr<PendingCall> call = BeginCall(**leader);
  if (call == nullptr) return;
  (*leader)->worker->CompleteInstance(
      {.cancellation = &call->cancellation}, request,
      [self = shared_from_this(), call,
       instance = std::move(instance)](StatusOr<pb::CompleteInstanceResponse> response) {
        self->EndCall(call);
        if (!response.ok()) return self->Finish(response.status());
        const int source = instance.kind == CollectiveKind::kBroadcast ? response->source_rank() : -1;
        if (instance.kind == CollectiveKind::kBroadcast && (source < 0 || source >= self->group().size())) {
          return self->Finish(Internal("the leader ", self->scope_.leader, " names member ", source, " of ",
                                       self->group().size(), " as the source of a broadcast"));
        }
        self->joined_.instances->Learn(instance, source);
        self->OnAgreed(source);
      });
}

void CollectiveRun::OnAgreed(int source_rank) {
  if (finished()) return;
  source_rank_ = source_rank;
  if (call_.memory != nullptr) {
    call_.memory->Set(std::make_shared<const Agreement>(Agreement{joined_, source_rank_}));
  }
  Exchange();
}

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

std::shared_ptr<CollectiveRun::PendingCall> CollectiveRun::BeginCall(const Peer& peer) {
  auto call = std::make_shared<PendingCall>();
  call->peer = {.task = peer.name, .address = peer.address, .worker = peer.worker};
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return nullptr;
    calls_.push_back(call);
  }
  if (task_->options().on_remote_wait != nullptr) task_->options().on_remote_wait();
  return call;
}

void CollectiveRun::EndCall(const std::shared_ptr<PendingCall>& call) {
  MutexLock lock(&mu_);
  calls_.erase(std::remove(calls_.begin(), calls_.end(), call), calls_.end());
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
  pb::RecvBufRequest request;
  request.set_step_id(step_id_);
  request.set_buf_rendezvous_key(key);
  request.set_num_bytes(static_cast<int64_t>(size));
  request.set_src_device(member.device.name());
  request.set_src_incarnation(member.device.incarnation());
  request.set_dst_device(device_.name());
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

void CollectiveRun::Finish(Status status) {
  CollectiveExecutor::Done done;
  CancellationManager::Token token = 0;
  TimerQueue::Id timer = 0;
  uint64_t wait = 0, group_waiter = 0, instance_waiter = 0;
  std::vector<std::shared_ptr<PendingCall>> calls;
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    done = std::exchange(done_, nullptr);
    token = token_;
    timer = timer_;
    wait = wait_;
    group_waiter = group_waiter_;
    instance_waiter = instance_waiter_;
    calls.swap(calls_);
  }
  if (token != 0) LetGo(cancellation_, token);
  if (timer != 0) task_->options().timers->Cancel(timer);
  if (waits_ != nullptr) waits_->End(wait);
  task_->Remove(this);
  if (status.ok()) {
    // Whoever comes after the op may now write its tensors in place.
    call_.input.Reset();
    call_.output.Reset();
    return done(absl::OkStatus());
  }
  Status why = status;
  if (absl::IsCancelled(why) && cancellation_ != nullptr && cancellation_->IsCancelled()) why = cancellation_->status();
  why = WithPrefix(absl::StrCat("{{node ", node_, "}} on ", device_.name(), " failed: "), why);
  // A member that nobody has cancelled must not seem to be.
  if (absl::IsCancelled(why)) why = Aborted(why.message());
  task_->exchange().FailStep(step_id_, why);
  if (group_waiter != 0) scope_.groups->Leave(call_.group.key, group_waiter, status);
  if (instance_waiter != 0) joined_.instances->Leave(Instance(), instance_waiter, status);
  for (const std::shared_ptr<PendingCall>& call : calls) call->cancellation.StartCancel(status);
  // The leader may form the group again, with a member that was restarted.
  if (!scope_.leads() && joined_.group != nullptr) scope_.groups->Drop(*joined_.group);
  done(std::move(status));
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
    pb::RecvBufRequest request;
    request.set_step_id(step_id_);
    request.set_buf_rendezvous_key(absl::StrCat(buffer_prefix_, kWatchKey, rank_, ":", rank));
    request.set_src_device(member.device.name());
    request.set_src_incarnation(member.device.incarnation());
    request.set_dst_device(device_.name());
    const std::shared_ptr<PendingCall> call = BeginCall(**peer);
    if (call == nullptr) return;
    (*peer)->worker->RecvBuf({.cancellation = &call->cancellation}, request,
                             [self = shared_from_this(), call](const StatusOr<net::Bytes>& answer) {
                               self->EndCall(call);
                               if (!answer.ok()) self->Finish(answer.status());
                             });
  }
}

void CollectiveRun::ListAwaited(std::vector<Awaited>* peers) const {
  MutexLock lock(&mu_);
  for (const std::shared_ptr<PendingCall>& call : calls_) peers->push_back(call->peer);
  if (phase_ == Phase::kJoining || scope_.peers == nullptr) return;
  // All members, also those with whom this exchanges nothing: the leader forms the group again when one of them was
  // restarted, and the others then wait for this one to join it.
  for (const GroupMember& member : group().members()) {
    const Peer* const peer = member.task == scope_.task ? nullptr : scope_.peers->Find(member.task);
    if (peer == nullptr) continue;
    peers->push_back({.task = peer->name,
                      .address = peer->address,
                      .worker = peer->worker,
                      .incarnation = member.device.incarnation()});
  }
}

void CollectiveRun::OnPeerLost(const Awaited& peer, const Status& why) {
  std::vector<Awaited> awaited;
  ListAwaited(&awaited);
  const bool waits =
      std::any_of(awaited.begin(), awaited.end(), [&](const Awaited& waiting) { return EndsWait(peer, why, waiting); });
  if (waits) Finish(why);
}

std::string CollectiveRun::Describe() const {
  const std::string instance = absl::StrCat("instance ", call_.instance_key, " of group ", call_.group.key);
  MutexLock lock(&mu_);
  switch (phase_) {
    case Phase::kJoining:
      if (!scope_.leads()) return absl::StrCat("group ", call_.group.key, ", which ", scope_.leader, " forms");
      return absl::StrCat("all members of group ", call_.group.key, " (", scope_.groups->Progress(call_.group.key), ")",
                          scope_.leader.empty() && scope_.peers != nullptr && !scope_.peers->all().empty()
                              ? "; no collective_group_leader is set, so only devices of this task can join"
                              : "");
    case Phase::kAgreeing:
      if (!scope_.leads()) return absl::StrCat(instance, " at its leader ", scope_.leader);
      return absl::StrCat("all members at ", instance, " (", joined_.instances->Progress(Instance()), ")");
    case Phase::kExchanging:
      if (!receives_.empty()) return absl::StrCat("data of ", instance, " from ", FirstDevice(group(), receives_));
      return absl::StrCat(FirstDevice(group(), sends_), " to take data of ", instance);
  }
  return instance;
}

}  // namespace millrace
