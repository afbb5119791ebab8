// How the members of a collective op agree: who is in the group, and what they do together.
#include <utility>

#include "millrace/cluster/collectives/collective_run.h"
#include "millrace/cluster/collectives/task_collectives.h"

namespace millrace {

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

}  // namespace millrace
