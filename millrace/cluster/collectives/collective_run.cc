#include "millrace/cluster/collectives/collective_run.h"

#include <algorithm>
#include <utility>

#include "millrace/cluster/collectives/task_collectives.h"
#include "millrace/cluster/step/let_go.h"

namespace millrace {
namespace {

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
      loop_(ctx.frame_id() == 0 ? ""
                                : absl::StrCat(" in iteration ", ctx.iteration(),
                                               " (where the loops of its members have the same name)")),
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
      if (!receives_.empty())
        return absl::StrCat("data of ", instance, loop_, " from ", FirstDevice(group(), receives_));
      return absl::StrCat(FirstDevice(group(), sends_), " to take data of ", instance, loop_);
  }
  return instance;
}

}  // namespace millrace
