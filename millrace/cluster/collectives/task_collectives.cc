#include "millrace/cluster/collectives/task_collectives.h"

#include <algorithm>
#include <random>
#include <utility>

#include "millrace/cluster/collectives/collective_run.h"
#include "millrace/cluster/step/let_go.h"

namespace millrace {
namespace {

// Longer keys are refused.
constexpr size_t kMaxBufferKey = 1 << 12;
constexpr int kMaxGraphKeys = 1 << 10;

TaskCollectivesOptions WithMachineRandom(TaskCollectivesOptions options) {
  if (options.random == nullptr) {
    options.random = [] {
      std::random_device device;
      return (static_cast<uint64_t>(device()) << 32) | device();
    };
  }
  return options;
}

// Calls `leave` if the caller gives up before `done` is called. `wait` begins the wait: it gets `done` and returns the
// number to leave with, 0 if nothing waits.
template <typename T, typename Wait, typename Leave>
void WaitWithControl(const CallControl& control, absl::AnyInvocable<void(StatusOr<T>)> done, const Wait& wait,
                     Leave leave) {
  CancellationManager* const cancellation = control.cancellation;
  if (cancellation == nullptr) {
    wait(std::move(done));
    return;
  }
  const CancellationManager::Token token = cancellation->NewToken();
  const uint64_t waiter =
      wait([cancellation, token, owner = control.owner, done = std::move(done)](auto result) mutable {
        LetGo(cancellation, token);
        done(std::move(result));
      });
  if (waiter == 0) return;
  const std::shared_ptr<void> owner = control.owner;  // the call may have been answered meanwhile
  if (!cancellation->Register(token, [leave, waiter] { leave(waiter); })) leave(waiter);
}

// The executor that kernels see.
class TaskCollectiveExecutor : public CollectiveExecutor {
 public:
  explicit TaskCollectiveExecutor(std::shared_ptr<TaskCollectives> task) : task_(std::move(task)) {}
  std::string DebugString() const override { return absl::StrCat("collective ops of ", task_->options().task); }
  void Run(KernelContext& ctx, CollectiveCall call, Done done) override {
    task_->Run(ctx, std::move(call), /*join_only=*/false, std::move(done));
  }
  void JoinGroup(KernelContext& ctx, const CollectiveGroupRef& group, absl::Duration timeout, Done done) override {
    task_->Run(ctx, {.group = group, .timeout = timeout}, /*join_only=*/true, std::move(done));
  }

 private:
  const std::shared_ptr<TaskCollectives> task_;
};

}  // namespace

TaskCollectives::TaskCollectives(TaskCollectivesOptions options)
    : options_(WithMachineRandom(std::move(options))), exchange_(options_.clock), sequences_(options_.random) {}

RefPtr<CollectiveExecutor> TaskCollectives::NewExecutor() {
  return MakeRef<TaskCollectiveExecutor>(shared_from_this());
}

void TaskCollectives::Run(KernelContext& ctx, CollectiveCall call, bool join_only, CollectiveExecutor::Done done) {
  StatusOr<CollectiveScope> scope = options_.scope(ctx.step().session);
  if (!scope.ok()) return done(scope.status());
  if (scope->task.empty()) {
    StatusOr<std::string> task = TaskOfDevice(ctx.device()->name());
    if (!task.ok()) return done(task.status());
    scope->task = *std::move(task);
  }
  const auto run = std::make_shared<CollectiveRun>(shared_from_this(), *std::move(scope), ctx, std::move(call),
                                                   join_only, std::move(done));
  Add(run.get());
  run->Start();
}

void TaskCollectives::Add(CollectiveRun* run) {
  MutexLock lock(&mu_);
  runs_[run] = {next_run_++, run->weak_from_this()};
}

void TaskCollectives::Remove(CollectiveRun* run) {
  MutexLock lock(&mu_);
  runs_.erase(run);
}

std::vector<std::shared_ptr<CollectiveRun>> TaskCollectives::Runs() const {
  std::vector<std::pair<uint64_t, std::shared_ptr<CollectiveRun>>> numbered;
  {
    MutexLock lock(&mu_);
    for (const auto& [pointer, entry] : runs_) {
      if (auto run = entry.run.lock()) numbered.emplace_back(entry.number, std::move(run));
    }
  }
  std::sort(numbered.begin(), numbered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::shared_ptr<CollectiveRun>> runs;
  for (auto& [number, run] : numbered) runs.push_back(std::move(run));
  return runs;
}

void TaskCollectives::CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                                    Done<pb::CompleteGroupResponse> done) {
  if (!request.has_device_attributes()) {
    return done(InvalidArgument("CompleteGroup for group ", request.group_key(), " at ", options_.task,
                                ": the request has no device_attributes"));
  }
  auto answer = [done = std::move(done)](StatusOr<JoinedGroup> joined) mutable {
    if (!joined.ok()) return done(joined.status());
    const DeviceGroup& group = *joined->group;
    pb::CompleteGroupResponse response;
    response.set_group_key(group.key());
    response.set_group_size(group.size());
    response.set_device_type(group.device_type());
    response.set_num_tasks(static_cast<int>(group.devices_per_task().size()));
    for (const GroupMember& member : group.members()) *response.add_device_attributes() = member.device;
    done(std::move(response));
  };
  const std::shared_ptr<GroupTable> groups = cluster_groups_;
  const int32_t key = request.group_key();
  WaitWithControl<JoinedGroup>(
      control, std::move(answer),
      [&](GroupTable::Done joined) {
        return groups->Join({.key = key,
                             .size = request.group_size(),
                             .device_type = request.device_type(),
                             .device = request.device_attributes()},
                            std::move(joined));
      },
      [groups, key](uint64_t waiter) { groups->Leave(key, waiter, Cancelled("the device has left the group")); });
}

void TaskCollectives::CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                                       Done<pb::CompleteInstanceResponse> done) {
  const StatusOr<JoinedGroup> joined = cluster_groups_->Find(request.group_key());
  if (!joined.ok()) return done(joined.status());
  const StatusOr<Shape> shape = Shape::FromProto(request.shape());
  if (!shape.ok()) return done(shape.status());
  InstanceRequest instance{.instance_key = request.instance_key(),
                           .step_id = request.step_id(),
                           .kind = static_cast<CollectiveKind>(request.type()),
                           .dtype = static_cast<DType>(request.data_type()),
                           .shape = *shape,
                           .device = request.device(),
                           .is_source = request.is_source()};
  if (request.type() < 0 || request.type() > static_cast<int>(CollectiveKind::kReduceScatter)) {
    return done(InvalidArgument("CompleteInstance for instance ", request.instance_key(),
                                ": there is no collective of type ", request.type()));
  }
  if (!IsKnown(instance.dtype) || IsRef(instance.dtype) || !IsPlain(instance.dtype)) {
    return done(InvalidArgument("CompleteInstance for instance ", request.instance_key(),
                                ": no collective of data type ", request.data_type()));
  }
  if (joined->group->RankOf(instance.device) < 0) {
    return done(InvalidArgument("device '", instance.device, "' is not a member of group ", request.group_key()));
  }
  auto answer = [key = request.instance_key(), done = std::move(done)](const StatusOr<int>& source) mutable {
    if (!source.ok()) return done(source.status());
    pb::CompleteInstanceResponse response;
    response.set_instance_key(key);
    response.set_source_rank(*source);
    done(std::move(response));
  };
  const std::shared_ptr<InstanceTable> instances = joined->instances;
  WaitWithControl<int>(
      control, std::move(answer),
      [&](InstanceTable::Done agreed) { return instances->Resolve(instance, std::move(agreed)); },
      [instances, instance](uint64_t waiter) {
        instances->Leave(instance, waiter, Cancelled("the device has left the instance"));
      });
}

StatusOr<pb::GetStepSequenceResponse> TaskCollectives::GetStepSequence(const pb::GetStepSequenceRequest& request) {
  if (request.graph_key_size() > kMaxGraphKeys) {
    return InvalidArgument("GetStepSequence for ", request.graph_key_size(), " graph keys; at most ", kMaxGraphKeys);
  }
  pb::GetStepSequenceResponse response;
  for (const int64_t key : request.graph_key()) {
    MR_ASSIGN_OR_RETURN(const int64_t step_id, sequences_.Current(key));
    pb::StepSequence* const sequence = response.add_step_sequence();
    sequence->set_graph_key(key);
    sequence->set_next_step_id(step_id);
  }
  return response;
}

void TaskCollectives::RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) {
  if (request.buf_rendezvous_key().empty() || request.buf_rendezvous_key().size() > kMaxBufferKey) {
    return done(InvalidArgument("RecvBuf: the key has ", request.buf_rendezvous_key().size(), " bytes; 1 to ",
                                kMaxBufferKey, " are expected"));
  }
  if (request.num_bytes() < 0) return done(InvalidArgument("RecvBuf: num_bytes is ", request.num_bytes()));
  if (options_.has_device != nullptr && !options_.has_device(request.src_incarnation())) {
    return done(FailedPrecondition("RecvBuf expects a different device incarnation: ", request.src_incarnation(),
                                   ". The task that has the device '", request.src_device(),
                                   "' was probably restarted; it is now served by ", options_.task));
  }
  const int64_t step_id = request.step_id();
  const std::string& key = request.buf_rendezvous_key();
  WaitWithControl<net::Bytes>(
      control, std::move(done),
      [&](BufferExchange::Got got) {
        return exchange_.Ask(
            {.step_id = step_id, .key = key, .size = request.num_bytes(), .receiver = request.dst_device()},
            std::move(got));
      },
      [self = shared_from_this(), step_id, key](uint64_t waiter) {
        self->exchange_.Withdraw(step_id, key, waiter, Cancelled("the receiver has given up"));
      });
}

void TaskCollectives::BeginStepOf(const CollectiveScope& scope, int64_t graph_key, const CallControl& control,
                                  Done<int64_t> done) {
  if (scope.leads() || sequences_.Has(graph_key)) return done(sequences_.Begin(graph_key));
  const StatusOr<const Peer*> leader = scope.FindPeer(scope.leader);
  if (!leader.ok()) return done(leader.status());
  pb::GetStepSequenceRequest request;
  request.add_graph_key(graph_key);
  (*leader)->worker->GetStepSequence(
      control, request,
      [self = shared_from_this(), graph_key, leader = scope.leader,
       done = std::move(done)](StatusOr<pb::GetStepSequenceResponse> response) mutable {
        if (!response.ok()) return done(response.status());
        if (response->step_sequence_size() != 1 || response->step_sequence(0).graph_key() != graph_key) {
          return done(Internal("the leader ", leader, " gave no step id for collective graph key ", graph_key));
        }
        const StatusOr<std::vector<int64_t>> left_out =
            self->sequences_.Learn(graph_key, response->step_sequence(0).next_step_id());
        if (!left_out.ok()) return done(left_out.status());
        // Members that are behind learn that nobody offers anything in those steps.
        for (const int64_t id : *left_out)
          self->exchange_.FailStep(id, Aborted("step ", id, " was left out by ", self->options_.task));
        done(self->sequences_.Begin(graph_key));
      });
}

void TaskCollectives::EndStepOf(const CollectiveScope& scope, int64_t graph_key, int64_t step_id,
                                const Status& status) {
  sequences_.End(graph_key, step_id);
  if (status.ok()) return;
  // It may have failed before any part of it began here.
  exchange_.FailStep(step_id, status);
  if (!scope.leads()) sequences_.Doubt(graph_key);
}

void TaskCollectives::BeginPart(int64_t step_id, int64_t collective_step) {
  MutexLock lock(&mu_);
  StepOfMaster& step = steps_[step_id];
  step.collective_step = collective_step;
  ++step.parts;
}

void TaskCollectives::EndPart(int64_t step_id) {
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  if (it != steps_.end() && --it->second.parts == 0) steps_.erase(it);
}

int64_t TaskCollectives::CollectiveStep(int64_t step_id) const {
  MutexLock lock(&mu_);
  const auto it = steps_.find(step_id);
  return it == steps_.end() ? step_id : it->second.collective_step;
}

void TaskCollectives::FailStep(int64_t step_id, const Status& why) { exchange_.FailStep(CollectiveStep(step_id), why); }

void TaskCollectives::Shutdown(const Status& why) {
  cluster_groups_->Clear(why);
  exchange_.Shutdown(why);
}

void TaskCollectives::ReleaseCluster(bool leads) {
  if (leads) return cluster_groups_->Release();
  cluster_groups_->Clear(Aborted("the session that the group of collective ops belongs to has ended"));
  sequences_.Clear();
}

bool TaskCollectives::ListAwaited(std::vector<Awaited>* peers) const {
  const std::vector<std::shared_ptr<CollectiveRun>> runs = Runs();
  for (const std::shared_ptr<CollectiveRun>& run : runs) {
    run->WatchTakers();
    run->ListAwaited(peers);
  }
  return !runs.empty();
}

void TaskCollectives::OnPeerLost(const Awaited& peer, const Status& why) {
  for (const std::shared_ptr<CollectiveRun>& run : Runs()) run->OnPeerLost(peer, why);
}

namespace {

// The executor of a session in this process, which has no peers.
RefPtr<CollectiveExecutor> NewLocalExecutor() {
  CollectiveScope scope;
  scope.groups = std::make_shared<GroupTable>();
  TaskCollectivesOptions options;
  options.task = "this process";
  options.scope = [scope](string_view) { return scope; };
  return std::make_shared<TaskCollectives>(std::move(options))->NewExecutor();
}

[[maybe_unused]] const bool local_collectives_registered = [] {
  CollectiveExecutor::SetLocalFactory(NewLocalExecutor);
  return true;
}();

}  // namespace

}  // namespace millrace
