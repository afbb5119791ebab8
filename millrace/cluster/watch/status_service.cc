#include "millrace/cluster/watch/status_service.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "millrace/base/descriptor_limit.h"
#include "millrace/base/process_usage.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {
namespace {

// A report has the sizes of this many variables.
constexpr size_t kMaxVariables = 20;

template <typename Entries, typename Key>
void SortBy(Entries* entries, Key key) {
  std::sort(entries->begin(), entries->end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

TaskStatus::Wait::Kind KindOf(Wait::Kind kind) {
  switch (kind) {
    case Wait::Kind::kTensor:
      return TaskStatus::Wait::TENSOR;
    case Wait::Kind::kElements:
      return TaskStatus::Wait::ELEMENTS;
    case Wait::Kind::kRoom:
      return TaskStatus::Wait::ROOM;
    case Wait::Kind::kPeer:
      return TaskStatus::Wait::PEER;
    case Wait::Kind::kOther:
      break;
  }
  return TaskStatus::Wait::OTHER;
}

TaskStatus::Wait::ResourceKind ResourceKindOf(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kQueue:
      return TaskStatus::Wait::QUEUE;
    case ResourceKind::kTokenQueue:
      return TaskStatus::Wait::TOKEN_QUEUE;
    case ResourceKind::kAccumulator:
      return TaskStatus::Wait::ACCUMULATOR;
    case ResourceKind::kBarrier:
      return TaskStatus::Wait::BARRIER;
    case ResourceKind::kStepGate:
      return TaskStatus::Wait::STEP_GATE;
    case ResourceKind::kOther:
      break;
  }
  return TaskStatus::Wait::OTHER_RESOURCE;
}

void SetWait(Wait wait, TaskStatus::Wait* entry) {
  entry->set_node(std::move(wait.node));
  entry->set_what(std::move(wait.what));
  entry->set_step_id(wait.step_id);
  entry->set_since_micros(absl::ToUnixMicros(wait.since));
  entry->set_kind(KindOf(wait.kind));
  entry->set_peer(std::move(wait.peer));
  entry->set_tensor(std::move(wait.tensor));
  entry->set_resource(std::move(wait.resource));
  entry->set_resource_kind(ResourceKindOf(wait.resource_kind));
  entry->set_has(wait.has);
  entry->set_needs(wait.needs);
}

}  // namespace

StatusService::StatusService(std::shared_ptr<Master> master, std::shared_ptr<Worker> worker, Clock* clock)
    : master_(std::move(master)), worker_(std::move(worker)), clock_(clock), cluster_(worker_->options().cluster) {}

void StatusService::set_cluster(const ClusterSpec& cluster) {
  MutexLock lock(&mu_);
  cluster_ = cluster;
}

TaskStatus StatusService::Report() const {
  const WorkerOptions& worker = worker_->options();
  TaskStatus status;
  status.set_task(worker.id.name());
  {
    MutexLock lock(&mu_);
    for (const TaskId& task : cluster_.tasks()) {
      TaskStatus::ClusterTask* entry = status.add_cluster();
      entry->set_task(task.name());
      entry->set_address(cluster_.Address(task).value_or(""));
      if (task == worker.id) status.set_address(entry->address());
    }
  }
  status.set_now_micros(absl::ToUnixMicros(clock_->Now()));
  status.set_started_micros(absl::ToUnixMicros(worker_->started()));
  for (const auto& device : worker_->task().devices()) {
    TaskStatus::Device* entry = status.add_devices();
    entry->set_name(device->name());
    entry->set_type(device->type());
    entry->set_incarnation(device->incarnation());
    entry->set_model(device->model());
    const Device::MemoryUse memory = device->memory_use();
    entry->set_memory_bytes(memory.in_use);
    entry->set_memory_limit_bytes(memory.limit);
  }
  AddSteps(&status);
  AddSessions(&status);
  for (Wait& wait : worker_->ListWaits()) SetWait(std::move(wait), status.add_waits());
  status.set_steps_finished(worker_->steps_finished().count());
  status.set_last_step_finished_micros(worker_->steps_finished().last_micros());
  status.set_parts_finished(worker_->parts_finished().count());
  status.set_last_part_finished_micros(worker_->parts_finished().last_micros());
  status.set_steps_micros(worker_->steps_finished().took_micros());
  status.set_memory_bytes(static_cast<int64_t>(MemoryBudget::Process()->used()));
  status.set_memory_limit_bytes(static_cast<int64_t>(MemoryBudget::Process()->limit()));
  const RunRecords& records = worker_->task().resources()->runs();
  status.set_run_records(static_cast<int64_t>(records.size()));
  status.set_run_record_bytes(static_cast<int64_t>(records.bytes()));
  status.set_run_record_limit_bytes(static_cast<int64_t>(RunRecordLimits().bytes));
  AddVariables(&status);
  AddTraffic(&status);
  return status;
}

void StatusService::AddVariables(TaskStatus* status) const {
  struct Sized {
    std::string name;
    RefPtr<Variable> variable;
    Shape shape;
    int64_t bytes;
  };
  std::vector<Sized> sized;
  const std::shared_ptr<ResourceManager> resources = worker_->task().resources();
  for (const std::string& line : resources->List()) {
    // "container/name: description"
    const size_t slash = line.find('/'), colon = line.find(": ", slash);
    std::string name = line.substr(slash + 1, colon - slash - 1);
    StatusOr<RefPtr<Variable>> variable = resources->Lookup<Variable>(line.substr(0, slash), name);
    if (!variable.ok()) continue;  // another kind of resource
    const StatusOr<Shape> shape = (*variable)->ShapeOfValue();
    if (!shape.ok()) continue;  // without a value yet
    const int64_t bytes = shape->num_elements() * static_cast<int64_t>(SizeOf((*variable)->dtype()));
    status->set_variable_bytes(status->variable_bytes() + bytes);
    sized.push_back({std::move(name), *std::move(variable), *shape, bytes});
  }
  status->set_variable_count(static_cast<int64_t>(sized.size()));
  const size_t shown = std::min(sized.size(), kMaxVariables);
  std::partial_sort(
      sized.begin(), sized.begin() + static_cast<ptrdiff_t>(shown), sized.end(),
      [](const Sized& a, const Sized& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name; });
  for (size_t i = 0; i < shown; ++i) {
    TaskStatus::Variable* entry = status->add_variables();
    entry->set_name(std::move(sized[i].name));
    entry->set_dtype(DTypeName(sized[i].variable->dtype()));
    for (const int64_t size : sized[i].shape.dims()) entry->add_shape(size);
    entry->set_bytes(sized[i].bytes);
  }
}

void StatusService::AddTraffic(TaskStatus* status) const {
  const ProcessUsage usage = UsageOfThisProcess();
  status->mutable_usage()->set_user_seconds(usage.user_seconds);
  status->mutable_usage()->set_system_seconds(usage.system_seconds);
  status->mutable_usage()->set_cores(UsableCores());
  const HostUsage host = UsageOfThisHost();
  status->mutable_usage()->set_host_busy_seconds(host.busy_seconds);
  status->mutable_usage()->set_host_cores(host.cores);
  if (worker_->options().transport == nullptr) return;
  net::TransportStatus transport = worker_->options().transport->status();
  status->set_refused_connections(static_cast<int64_t>(transport.refused_connections));
  status->set_incoming_connections(transport.incoming_connections);
  status->set_excess_connections(static_cast<int64_t>(transport.excess_connections));
  status->set_last_excess(std::move(transport.last_excess));
  status->set_descriptor_limit(DescriptorLimit());
  for (net::PeerStatus& peer : transport.peers) {
    TaskStatus::Peer* entry = status->add_peers();
    entry->set_peer(std::move(peer.peer));
    entry->set_outgoing(peer.outgoing);
    entry->set_lane(std::move(peer.kind));
    entry->set_why_not_better(std::move(peer.why_not_better));
    entry->set_bytes_sent(static_cast<int64_t>(peer.bytes_sent));
    entry->set_bytes_received(static_cast<int64_t>(peer.bytes_received));
    entry->set_calls(static_cast<int64_t>(peer.calls));
  }
  SortBy(status->mutable_peers(),
         [](const TaskStatus::Peer& peer) { return std::pair(!peer.outgoing(), peer.peer()); });
}

void StatusService::AddSteps(TaskStatus* status) const {
  const std::vector<RunningPart> parts = worker_->ListRunning();
  std::set<int64_t> running_here, driven_here;
  for (const RunningPart& part : parts) running_here.insert(part.step_id);
  for (const std::shared_ptr<MasterSession>& session : master_->sessions()) {
    for (RunningStep& step : session->ListRunning()) {
      driven_here.insert(step.step_id);
      TaskStatus::Step* entry = status->add_steps();
      entry->set_id(step.step_id);
      entry->set_session(std::move(step.session));
      entry->set_since_micros(absl::ToUnixMicros(step.since));
      entry->set_driven_here(true);
      if (running_here.contains(step.step_id)) entry->add_waits_for(status->task());
      for (std::string& task : step.waits_for) entry->add_waits_for(std::move(task));
    }
  }
  for (const RunningPart& part : parts) {
    if (driven_here.contains(part.step_id)) continue;
    TaskStatus::Step* entry = status->add_steps();
    entry->set_id(part.step_id);
    entry->set_session(part.session);
    entry->set_since_micros(absl::ToUnixMicros(part.since));
  }
  SortBy(status->mutable_steps(),
         [](const TaskStatus::Step& step) { return std::pair(step.since_micros(), step.id()); });
}

void StatusService::AddSessions(TaskStatus* status) const {
  std::map<std::string, int64_t> running;
  for (const TaskStatus::Step& step : status->steps()) ++running[step.session()];
  std::set<std::string> driven_here;
  for (const std::shared_ptr<MasterSession>& session : master_->sessions()) {
    driven_here.insert(session->handle());
    TaskStatus::Session* entry = status->add_sessions();
    entry->set_handle(session->handle());
    entry->set_opened_micros(absl::ToUnixMicros(session->opened()));
    entry->set_master(status->task());
    entry->set_nodes(session->num_nodes());
    entry->set_steps_finished(session->steps_finished().count());
    entry->set_last_step_finished_micros(session->steps_finished().last_micros());
    entry->set_running_steps(running[session->handle()]);
    entry->set_client(session->lease()->client());
  }
  for (const std::shared_ptr<WorkerSession>& session : worker_->ListSessions()) {
    if (driven_here.contains(session->handle())) continue;
    TaskStatus::Session* entry = status->add_sessions();
    entry->set_handle(session->handle());
    entry->set_opened_micros(absl::ToUnixMicros(session->opened()));
    entry->set_master(session->master());
    entry->set_running_steps(running[session->handle()]);
    entry->set_client(session->lease()->client());
  }
  std::map<std::string, TaskStatus::Session*> by_handle;
  for (TaskStatus::Session& entry : *status->mutable_sessions()) by_handle[entry.handle()] = &entry;
  for (const std::shared_ptr<WorkerSession>& session : worker_->ListSessions()) {
    const auto it = by_handle.find(session->handle());
    if (it == by_handle.end()) continue;
    it->second->set_memory_bytes(static_cast<int64_t>(session->memory().used()));
    it->second->set_memory_limit_bytes(static_cast<int64_t>(session->memory().limit()));
  }
  SortBy(status->mutable_sessions(),
         [](const TaskStatus::Session& session) { return std::pair(session.opened_micros(), session.handle()); });
}

}  // namespace millrace
