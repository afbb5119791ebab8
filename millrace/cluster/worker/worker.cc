#include "millrace/cluster/worker/worker.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "millrace/cluster/worker/prepare_senders.h"
#include "millrace/cluster/worker/repeated_part.h"
#include "millrace/cluster/worker/streamed_part.h"
#include "millrace/device/renamed_device.h"
#include "millrace/graph/graph_def.h"

namespace millrace {

std::shared_ptr<Worker> Worker::Make(WorkerOptions options) {
  std::shared_ptr<Worker> worker(new Worker(std::move(options)));
  worker->liveness_ = LivenessMonitor::Make(worker->options_.liveness, std::weak_ptr<LivenessClient>(worker));
  worker->leases_ = LeaseMonitor::Make(worker->options_.lease, std::weak_ptr<LeaseClient>(worker));
  return worker;
}

Worker::Worker(WorkerOptions options)
    : options_(std::move(options)),
      started_(task().clock()->Now()),
      steps_(std::make_shared<StepTable>(
          StepTableOptions{.task = task().name(), .waits = task().waits(), .clock = task().clock()})),
      collectives_(NewCollectives()),
      sessions_(std::make_unique<SessionTable>(
          task().name(),
          std::make_shared<WorkerSession>(WorkerSessionOptions{
              .task = options_.task,
              .peers = std::make_shared<PeerSet>(options_.cluster, options_.id, options_.transport, options_.liveness),
              .group_leader = options_.collective_group_leader,
              .cluster_groups = collectives_->cluster_groups()}))) {
  OfferCollectives(task().resources().get());
}

std::shared_ptr<TaskCollectives> Worker::NewCollectives() {
  TaskCollectivesOptions collectives;
  collectives.task = task().name();
  // The ops that call these run on this worker's task, which its steps keep alive, but not the worker.
  collectives.scope = [this](string_view session) -> StatusOr<CollectiveScope> {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerSession> found,
                        sessions_->Find(std::string(session), !session.empty()));
    return found->collectives();
  };
  collectives.has_device = [task = options_.task](uint64_t incarnation) {
    return std::any_of(task->devices().begin(), task->devices().end(),
                       [&](const auto& device) { return device->incarnation() == incarnation; });
  };
  collectives.on_remote_wait = [this] { liveness_->Poke(); };
  collectives.timers = options_.liveness.timers;
  collectives.clock = task().clock();
  collectives.random = options_.random;
  return std::make_shared<TaskCollectives>(std::move(collectives));
}

void Worker::OfferCollectives(ResourceManager* resources) {
  (void)resources->LookupOrCreate<CollectiveExecutor>(
      CollectiveExecutor::kContainer, CollectiveExecutor::kName,
      [this]() -> StatusOr<RefPtr<CollectiveExecutor>> { return collectives_->NewExecutor(); });
}

Worker::~Worker() { Clear(); }

void Worker::Clear() {
  steps_->Clear();
  sessions_->Clear();
  task().resources()->ClearAll();
}

void Worker::Shutdown(const Status& why, absl::AnyInvocable<void()> idle) {
  leases_->Stop();
  sessions_->Shutdown(why);
  steps_->Shutdown(why);
  collectives_->Shutdown(why);
  task().Close(Unavailable("task ", task().name(), " is going down"), why, std::move(idle));
}

// What TensorFlow reports for a CPU.
constexpr int64_t kUnknownMemory = 256 << 20;

void Worker::GetStatus(const CallControl&, Done<pb::GetStatusResponse> done) {
  pb::GetStatusResponse response;
  for (const auto& device : task().devices()) {
    pb::DeviceAttributes* attributes = response.add_device_attributes();
    attributes->set_name(device->name());
    attributes->set_device_type(device->type());
    const Device::MemoryUse memory = device->memory_use();
    attributes->set_memory_limit(memory.limit > 0 ? memory.limit : kUnknownMemory);
    attributes->mutable_locality();
    attributes->set_incarnation(device->incarnation());
    attributes->set_xla_global_id(-1);
    // A CPU's tells other tasks who this is; see FindTasks.
    attributes->set_physical_device_desc(
        device->model().empty() ? "Millrace"
                                : absl::StrCat("device: ", device->name().substr(device->name().rfind(':') + 1),
                                               ", name: ", device->model()));
  }
  done(std::move(response));
}

StatusOr<std::shared_ptr<WorkerSession>> Worker::NewSession(const pb::CreateWorkerSessionRequest& request) {
  WorkerSessionOptions session{.task = options_.task};
  session.on_task.handle = request.session_handle();
  if (request.isolate_session_state()) session.on_task.resources = std::make_shared<ResourceManager>();
  OfferCollectives(session.on_task.resources != nullptr ? session.on_task.resources.get() : task().resources().get());
  session.cluster_groups = collectives_->cluster_groups();
  session.group_leader = options_.collective_group_leader;
  const std::string& leader = request.server_def().default_session_config().experimental().collective_group_leader();
  if (!leader.empty()) {
    MR_ASSIGN_OR_RETURN(session.group_leader, LeaderName(leader));
  }
  session.master_task = request.master_task();
  session.master_incarnation = request.master_incarnation();
  session.opened = task().clock()->Now();
  session.peers = sessions_->legacy()->peers();
  if (const pb::ServerDef& server = request.server_def(); server.cluster().job_size() > 0) {
    // The session brings its own cluster spec, in which this task may have another name.
    MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::FromDef(server.cluster()));
    const TaskId self{server.job_name(), server.task_index()};
    MR_RETURN_IF_ERROR(cluster.Address(self).status());
    session.peers = std::make_shared<PeerSet>(cluster, self, options_.transport, options_.liveness);
    if (!(self == options_.id)) {
      for (const auto& device : task().devices()) session.on_task.devices.push_back(RenameDevice(device, self.name()));
    }
  }
  return std::make_shared<WorkerSession>(std::move(session));
}

StatusOr<std::shared_ptr<WorkerSession>> Worker::MakeSession(const pb::CreateWorkerSessionRequest& request) {
  for (const std::string& orphan : sessions_->OrphansOf(request.master_task(), request.master_incarnation())) {
    DeleteWorkerSession({}, orphan, [](Status) {});
  }
  return sessions_->FindOrMake(request.session_handle(), [&] { return NewSession(request); });
}

void Worker::CreateWorkerSession(const CallControl& control, pb::CreateWorkerSessionRequest request, DoneStatus done) {
  if (request.session_handle().empty()) return done(InvalidArgument("a worker session needs a handle"));
  for (const int64_t step : request.millrace_ended_steps()) EndStep(step);
  StatusOr<std::shared_ptr<WorkerSession>> session = MakeSession(request);
  if (session.ok() && control.from != nullptr) {
    (*session)->lease()->Touch(*control.from);
    leases_->Poke();
  }
  done(session.status());
}

void Worker::DeleteWorkerSession(const CallControl&, const std::string& handle, DoneStatus done) {
  const std::shared_ptr<WorkerSession> session = sessions_->Close(handle);
  if (session != nullptr && !session->collectives().leader.empty()) {
    const std::vector<std::shared_ptr<WorkerSession>> left = sessions_->List();
    if (std::all_of(left.begin(), left.end(), [](const auto& other) { return other->collectives().leader.empty(); }))
      collectives_->ReleaseCluster(session->collectives().leads());
  }
  steps_->ForgetSession(handle, Cancelled("the session was closed"));
  if (session != nullptr) session->DeregisterAll();
  if (session != nullptr && options_.on_session_end != nullptr) options_.on_session_end();
  done(absl::OkStatus());
}

void Worker::RegisterGraph(const CallControl& control, pb::RegisterGraphRequest request,
                           Done<pb::RegisterGraphResponse> done) {
  StatusOr<std::shared_ptr<WorkerSession>> session =
      sessions_->Find(request.session_handle(), request.create_worker_session_called());
  if (!session.ok()) return done(session.status());
  if (control.from != nullptr) (*session)->lease()->Touch(*control.from);
  const bool plain = request.config_proto().graph_options().optimizer_options().opt_level() == pb::OptimizerOptions::L0;
  const std::string& leader = request.config_proto().experimental().collective_group_leader();
  if (!leader.empty() && *session == sessions_->legacy()) {
    StatusOr<std::string> name = LeaderName(leader);
    if (!name.ok()) return done(name.status());
    (*session)->SetGroupLeader(*name);
  }
  auto graph = std::make_unique<Graph>();
  if (Status status = ImportGraphDef(std::move(*request.mutable_graph_def()), graph.get()); !status.ok()) {
    return done(status);
  }
  PassContext context;
  RunAllOf(*graph, &context);
  StatusOr<std::shared_ptr<RegisteredGraph>> compiled =
      (*session)->Compile(std::move(graph), std::move(context), plain ? PassOptions::None() : PassOptions());
  if (!compiled.ok()) return done(compiled.status());
  const Graph& part = (*compiled)->part.plan->graph();
  StatusOr<std::string> handle = (*session)->Register(*compiled);
  if (!handle.ok()) return done(handle.status());
  pb::RegisterGraphResponse response;
  response.set_graph_handle(*std::move(handle));
  PrepareSenders(part, *(*session)->peers(), (*session)->master(),
                 [response = std::move(response), done = std::move(done)]() mutable { done(std::move(response)); });
}

void Worker::DeregisterGraph(const CallControl&, pb::DeregisterGraphRequest request, DoneStatus done) {
  StatusOr<std::shared_ptr<WorkerSession>> session =
      sessions_->Find(request.session_handle(), request.create_worker_session_called());
  done(session.ok() ? (*session)->Deregister(request.graph_handle()) : session.status());
}

void Worker::CleanupAll(const CallControl&, std::vector<std::string> containers, DoneStatus done) {
  if (containers.empty()) containers.push_back(ResourceManager::kDefaultContainer);
  for (const std::string& container : containers) {
    task().resources()->ClearContainer(container.empty() ? ResourceManager::kDefaultContainer : container);
  }
  done(absl::OkStatus());
}

void Worker::RunGraph(const CallControl& control, RunGraphCall call, Done<RunGraphAnswer> done) {
  StatusOr<std::shared_ptr<WorkerSession>> session =
      sessions_->Find(call.session_handle, call.create_worker_session_called);
  if (!session.ok()) return done(session.status());
  if (control.from != nullptr) (*session)->lease()->Touch(*control.from);
  StatusOr<std::shared_ptr<RegisteredGraph>> graph = (*session)->Find(call.graph_handle);
  if (!graph.ok()) return done(graph.status());
  if (control.cancellation == nullptr) return done(Internal("a step cannot run without a way to cancel it"));
  StatusOr<RefPtr<StepRendezvous>> begun = steps_->BeginRun(call.step_id, call.session_handle);
  if (!begun.ok()) return done(begun.status());
  const RefPtr<StepRendezvous> rendezvous = *std::move(begun);
  PartRun run{.graph = *std::move(graph), .step_id = call.step_id, .rendezvous = rendezvous};
  run.trace = call.exec_opts.record_timeline();
  run.cancellation = control.cancellation;
  run.owner = control.owner;
  run.handover = control.handover;
  run.from = control.from;
  run.run = call.run;
  run.collective_step = call.collective_step;
  auto answer = std::make_unique<RunGraphAnswer>();
  for (auto& [key, value] : call.send) {
    if (Status status = rendezvous->Send(key, {std::move(value), false}); !status.ok()) answer->status = status;
  }
  if (call.exec_opts.record_partition_graphs())
    answer->partition_graphs.push_back(ExportGraphDef(run.graph->part.plan->graph()));
  call.send.clear();
  Run(std::move(run),
      [self = shared_from_this(), rendezvous, call = std::move(call), answer = std::move(answer),
       cancellation = control.cancellation, owner = control.owner, done = std::move(done)](PartResult result) mutable {
        result.status = CauseOf(std::move(result.status), cancellation);
        self->FinishRunGraph(call, *rendezvous, *answer, std::move(result));
        done(std::move(*answer));
      });
}

void Worker::FinishRunGraph(const RunGraphCall& call, StepRendezvous& rendezvous, RunGraphAnswer& answer,
                            PartResult result) {
  answer.step_stats = std::move(result.step_stats);
  if (answer.status.ok()) answer.status = result.status;
  // Everything that the part sends exists once it has run.
  for (const std::string& key : call.recv_keys) {
    if (!answer.status.ok()) break;
    bool came = false;
    rendezvous.RecvLocal(key, [&](StatusOr<RendezvousItem> item) {
      came = true;
      if (!item.ok()) {
        answer.status = item.status();
      } else if (item->is_dead) {
        StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
        answer.status =
            Internal("the fetched tensor ", parsed.ok() ? parsed->tensor : key, " is dead: its branch was not taken");
      } else {
        answer.recv.emplace_back(key, std::move(item->tensor));
      }
    });
    if (!came) {
      // The callback refers to this stack frame, so it must not outlive it.
      const Status missing = InvalidArgument("step ", call.step_id, " gives no tensor under '", key, "'");
      rendezvous.Abort(missing);
      answer.status = missing;
    }
  }
  steps_->NoteRan(call.step_id, rendezvous, answer.status.ok());
}

void Worker::ServeGraph(const CallControl& control, std::shared_ptr<net::IncomingCall> call) {
  std::make_shared<StreamedPart>(shared_from_this(), std::move(call))->Serve(control);
}

void Worker::Run(PartRun run, absl::AnyInvocable<void(PartResult)> done) {
  (new PartExecution(shared_from_this(), std::move(run), std::move(done)))->Start();
}

void Worker::Repeat(PartRun run, absl::AnyInvocable<void(PartResult)> done) {
  std::make_shared<RepeatedPart>(shared_from_this(), std::move(run), std::move(done))->Start();
}

void Worker::CleanupGraph(const CallControl&, int64_t step_id, DoneStatus done) {
  EndStep(step_id);
  done(absl::OkStatus());
}

void Worker::EndStep(int64_t step_id) {
  const Status why = Aborted("step ", step_id, " has ended on ", task().name());
  steps_->Forget(step_id);
  collectives_->FailStep(step_id, why);
  // A part still runs if the message that cancels it was lost.
  task().CancelStep(step_id, why);
}

Status Worker::CheckKey(const std::string& key) const {
  MR_ASSIGN_OR_RETURN(const ParsedKey parsed, ParsedKey::Parse(key));
  for (const auto& device : task().devices()) {
    if (device->incarnation() == parsed.incarnation) return absl::OkStatus();
  }
  return Aborted("task ", task().name(), " was restarted: the tensor ", parsed.tensor,
                 " was expected from its previous process");
}

void Worker::RecvTensor(const CallControl& control, int64_t step_id, const std::string& key,
                        Done<RendezvousItem> done) {
  RecvTensors(control, step_id, {key}, [done = std::move(done)](StatusOr<std::vector<RendezvousItem>> items) mutable {
    if (!items.ok()) return done(items.status());
    done(std::move(items->front()));
  });
}

void Worker::RecvTensors(const CallControl& control, int64_t step_id, const std::vector<std::string>& keys,
                         Done<std::vector<RendezvousItem>> done) {
  if (keys.empty()) return done(InvalidArgument("step ", step_id, ": no tensor is asked for"));
  for (const std::string& key : keys) {
    if (Status status = CheckKey(key); !status.ok()) return done(std::move(status));
  }
  steps_->Recv(control, step_id, keys, std::move(done));
}

std::vector<Wait> Worker::ListWaits() const {
  std::vector<Wait> waits = task().waits()->List();
  for (const RefPtr<StepRendezvous>& step : steps_->Rendezvous()) step->ListWaits(&waits);
  collectives_->ListWaits(&waits);
  std::stable_sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.since < b.since; });
  return waits;
}

std::vector<LeasedSession> Worker::ListLeased() {
  absl::flat_hash_set<std::string> busy;
  for (RunningPart& part : task().ListRunning()) busy.insert(std::move(part.session));
  std::vector<LeasedSession> leased;
  for (const std::shared_ptr<WorkerSession>& session : sessions_->List()) {
    leased.push_back(
        {.handle = session->handle(), .lease = session->lease(), .idle = !busy.contains(session->handle())});
  }
  return leased;
}

void Worker::Expire(const std::string& handle, const Status&) {
  DeleteWorkerSession({}, handle, [](Status) {});
}

bool Worker::ListAwaited(std::vector<Awaited>* peers) {
  for (const RefPtr<StepRendezvous>& step : steps_->Rendezvous()) step->ListAwaited(peers);
  collectives_->ListAwaited(peers);
  return task().is_running();
}

void Worker::OnPeerLost(const Awaited& peer, const Status& why) {
  for (const RefPtr<StepRendezvous>& step : steps_->Rendezvous()) step->AbortIfAwaiting(peer, why);
  collectives_->OnPeerLost(peer, why);
}

void Worker::CompleteGroup(const CallControl& control, const pb::CompleteGroupRequest& request,
                           Done<pb::CompleteGroupResponse> done) {
  collectives_->CompleteGroup(control, request, std::move(done));
}

void Worker::CompleteInstance(const CallControl& control, const pb::CompleteInstanceRequest& request,
                              Done<pb::CompleteInstanceResponse> done) {
  collectives_->CompleteInstance(control, request, std::move(done));
}

void Worker::GetStepSequence(const CallControl&, const pb::GetStepSequenceRequest& request,
                             Done<pb::GetStepSequenceResponse> done) {
  done(collectives_->GetStepSequence(request));
}

void Worker::RecvBuf(const CallControl& control, const pb::RecvBufRequest& request, Done<net::Bytes> done) {
  collectives_->RecvBuf(control, request, std::move(done));
}

}  // namespace millrace
