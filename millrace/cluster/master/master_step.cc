#include "millrace/cluster/master/master_step.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "millrace/base/exception_status.h"
#include "millrace/cluster/step/let_go.h"
#include "millrace/cluster/worker/remote_worker.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// Merges the statistics; each device is listed once.
void Join(pb::StepStats stats, pb::StepStats* all) {
  for (pb::DeviceStepStats& device : *stats.mutable_dev_stats()) {
    const auto same = std::find_if(all->mutable_dev_stats()->begin(), all->mutable_dev_stats()->end(),
                                   [&](const pb::DeviceStepStats& other) { return other.device() == device.device(); });
    if (same != all->mutable_dev_stats()->end()) {
      same->MergeFrom(device);
    } else {
      *all->add_dev_stats() = std::move(device);
    }
  }
}

}  // namespace

MasterStep::MasterStep(std::shared_ptr<MasterSession> session, std::shared_ptr<const MasterProgram> program,
                       std::vector<Tensor> feeds, const pb::RunOptions& options, int64_t step_id,
                       RefPtr<StepRendezvous> rendezvous, Done done)
    : session_(std::move(session)),
      program_(std::move(program)),
      feeds_(std::move(feeds)),
      trace_(options.trace_level() > pb::RunOptions::NO_TRACE),
      partition_graphs_(options.output_partition_graphs()),
      timeout_(options.timeout_in_ms() > 0 ? absl::Milliseconds(options.timeout_in_ms()) : absl::InfiniteDuration()),
      run_(options.has_millrace_run() ? FromProto(options.millrace_run()) : RunIdentity()),
      step_id_(step_id),
      since_(session_->options_.worker->task().clock()->Now()),
      done_(std::move(done)),
      rendezvous_(std::move(rendezvous)),
      parts_(program_->parts.size() + 1, [this](Status) { End(); }) {
  if (!program_->is_local()) awaited_.assign(program_->parts.size(), true);
  result_.fetches.resize(program_->spec.fetches.size());
}

void MasterStep::Refuse(Status why) {
  if (rendezvous_) session_->options_.worker->steps().Forget(step_id_);
  Done done = std::move(done_);
  done(std::move(why));
}

void MasterStep::Start(const CallControl& control) {
  const std::shared_ptr<MasterStep> self = shared_from_this();
  const int parts = static_cast<int>(program_->parts.size());
  handover_ = control.handover;
  if (control.cancellation != nullptr) {
    const CancellationManager::Token token = control.cancellation->NewToken();
    if (control.cancellation->Register(token, [weak = weak_from_this()] {
          if (auto step = weak.lock()) step->Cancel(Cancelled("the client gave up on the step"));
        })) {
      outer_ = control.cancellation;
      outer_token_ = token;
    } else {
      Cancel(Cancelled("the client gave up on the step"));
    }
  }
  // A limit that the caller's transport watches needs no timer here.
  if (timeout_ != absl::InfiniteDuration() && control.timeout == absl::InfiniteDuration()) {
    timer_ = session_->options_.timers->Schedule(timeout_, [weak = weak_from_this(), timeout = timeout_] {
      if (auto step = weak.lock()) {
        step->timed_out_.store(true);
        step->Cancel(DeadlineExceeded("the step did not end within ", absl::FormatDuration(timeout)));
      }
    });
  }
  int home = -1;
  if (!program_->is_local()) OpenLines();
  for (int i = 0; i < parts; ++i) {
    if (program_->parts[i].peer == nullptr) {
      home = i;
    } else if (streamed_[i] != nullptr) {
      StreamAtPeer(i);
    } else {
      RunAtPeer(i);
    }
  }
  // Last, since it works on this thread.
  if (home >= 0) RunAtHome(home, control.from);
  parts_.Arrive();
}

void MasterStep::RunAtPeer(int index) {
  const ProgramPart& part = program_->parts[index];
  RunGraphCall call;
  call.session_handle = session_->handle();
  call.graph_handle = part.graph_handle;
  call.step_id = step_id_;
  call.request_id = step_id_;
  call.run = run_;
  call.collective_step = collective_step_;
  call.exec_opts.set_record_timeline(trace_);
  call.exec_opts.set_record_partition_graphs(partition_graphs_);
  for (const ClientEdge& feed : part.feeds) call.send.emplace_back(feed.key, feeds_[feed.index]);
  for (const ClientEdge& fetch : part.fetches) {
    // A client may fetch a tensor twice.
    if (!absl::c_linear_search(call.recv_keys, fetch.key)) call.recv_keys.push_back(fetch.key);
  }
  const int64_t start = trace_ ? NowNanos() : 0;
  part.peer->worker->RunGraph(
      {.cancellation = &cancellation_, .handover = handover_}, std::move(call),
      [self = shared_from_this(), index, start](StatusOr<RunGraphAnswer> answer) {
        const ProgramPart& part = self->program_->parts[index];
        if (answer.ok() && self->trace_) self->TraceCall(index, start);
        if (!answer.ok()) return self->OnPart(index, answer.status());
        Status status =
            self->TakeAnswer(index, answer->status, std::move(answer->step_stats), std::move(answer->partition_graphs));
        if (status.ok()) {
          for (const ClientEdge& fetch : part.fetches) {
            bool found = false;
            for (auto& [key, value] : answer->recv) {
              if (key != fetch.key) continue;
              self->result_.fetches[fetch.index] = value;
              found = true;
            }
            if (!found) status = Internal(part.peer->name, " did not give ", self->program_->spec.fetches[fetch.index]);
          }
        }
        self->OnPart(index, status);
      });
}

// Opens a line to each peer that is reached by a streaming call: the tensors between home and the peer are sent on the
// call that runs the part.
void MasterStep::OpenLines() {
  streamed_.assign(program_->parts.size(), nullptr);
  for (const ProgramPart& part : program_->parts) {
    if (part.peer == nullptr && part.graph->edges != nullptr) rendezvous_->UseEdges(part.graph->edges);
  }
  for (size_t i = 0; i < program_->parts.size(); ++i) {
    const ProgramPart& part = program_->parts[i];
    if (part.peer == nullptr || !part.is_numbered) continue;
    streamed_[i] = part.peer->worker->streaming();
    if (streamed_[i] == nullptr) continue;
    if (part.edges_task >= 0) rendezvous_->OpenLine(part.edges_task, /*answers=*/false, trace_);
  }
}

void MasterStep::StreamAtPeer(int index) {
  const ProgramPart& part = program_->parts[index];
  StepStart start{.session_handle = session_->handle(), .graph_handle = part.graph_handle, .step_id = step_id_};
  start.run = run_;
  start.collective_step = collective_step_;
  start.record_timeline = trace_;
  start.record_partition_graphs = partition_graphs_;
  // Timeouts and statistics apply to a single run.
  start.may_repeat = may_repeat_ && program_->parts.size() == 1 && timeout_ == absl::InfiniteDuration() && !trace_ &&
                     !partition_graphs_;
  start.feeds.reserve(part.feeds.size());
  for (size_t i = 0; i < part.feeds.size(); ++i) {
    start.feeds.push_back({.number = part.feed_numbers[i], .item = {.tensor = feeds_[part.feeds[i].index]}});
  }
  StatusOr<net::Bytes> request = EncodeStepStart(start);
  if (!request.ok()) return OnPart(index, request.status());
  const int64_t start_nanos = trace_ ? NowNanos() : 0;
  RefPtr<net::OutgoingStream> call = streamed_[index]->StreamGraph(
      {.cancellation = &cancellation_, .handover = handover_}, *std::move(request),
      [self = shared_from_this(), index](net::Bytes message) { self->OnPushed(index, message); },
      [self = shared_from_this(), index, start_nanos](StatusOr<net::Bytes> answer) {
        self->OnStreamEnd(index, start_nanos, answer);
      });
  if (part.edges_task >= 0) rendezvous_->SetLine(part.edges_task, {.outgoing = std::move(call)});
}

void MasterStep::OnPushed(int index, const net::Bytes& message) {
  const ProgramPart& part = program_->parts[index];
  StatusOr<SteppedTensors> tensors = CatchExceptions([&] { return DecodeTensors(message, Allocator::Heap()); });
  Status status = tensors.status();
  if (status.ok() && part.edges_task < 0) status = InvalidArgument("no tensor is expected from this task");
  if (status.ok()) status = rendezvous_->Arrive(part.edges_task, *std::move(tensors));
  if (status.ok()) return;
  status = WithPrefix(absl::StrCat("From ", part.peer->name, ": "), status);
  Fail(status);
}

void MasterStep::OnStreamEnd(int index, int64_t start_nanos, const StatusOr<net::Bytes>& answer) {
  if (!answer.ok()) return OnPart(index, answer.status());
  if (trace_) TraceCall(index, start_nanos);
  const ProgramPart& part = program_->parts[index];
  StatusOr<StepEnd> end = CatchExceptions([&] { return DecodeStepEnd(*answer, Allocator::Heap()); });
  if (!end.ok()) return OnPart(index, WithPrefix(absl::StrCat("From ", part.peer->name, ": "), end.status()));
  Status status = TakeAnswer(index, end->status, std::move(end->step_stats), std::move(end->partition_graphs));
  if (!status.ok()) return OnPart(index, status);
  // Fetches, and piggybacked tensors.
  std::erase_if(end->tensors, [&](SteppedTensor& tensor) {
    bool fetched = false;
    for (size_t i = 0; i < part.fetches.size(); ++i) {
      if (tensor.number < 0 || tensor.number != part.fetch_numbers[i]) continue;
      result_.fetches[part.fetches[i].index] = tensor.item.tensor;
      fetched = true;
    }
    return fetched;
  });
  for (const ClientEdge& fetch : part.fetches) {
    if (!result_.fetches[fetch.index].IsInitialized())
      status = Internal(part.peer->name, " did not give ", program_->spec.fetches[fetch.index]);
  }
  if (part.edges_task >= 0) {
    if (status.ok()) status = rendezvous_->Arrive(part.edges_task, std::move(end->tensors));
    rendezvous_->EndLine(part.edges_task);
  } else if (!end->tensors.empty() && status.ok()) {
    status = Internal(part.peer->name, " sent a tensor that nobody waits for");
  }
  OnPart(index, status);
}

Status MasterStep::TakeAnswer(int index, Status status, pb::StepStats stats, std::vector<pb::GraphDef> graphs) {
  const std::string& name = program_->parts[index].peer->name;
  if (!status.ok() && !absl::StrContains(status.message(), name))
    status = WithPrefix(absl::StrCat("From ", name, ":\n"), status);
  if (stats.dev_stats_size() > 0 || !graphs.empty()) {
    MutexLock lock(&mu_);
    if (stats.dev_stats_size() > 0) stats_.push_back(std::move(stats));
    for (pb::GraphDef& graph : graphs) graphs_.push_back(std::move(graph));
  }
  return status;
}

int64_t MasterStep::NowNanos() const { return absl::ToUnixNanos(session_->options_.worker->task().clock()->Now()); }

void MasterStep::TraceCall(int index, int64_t start_nanos) {
  pb::StepStats stats;
  pb::DeviceStepStats* device = stats.add_dev_stats();
  device->set_device(session_->builder_->home_device());
  pb::NodeExecStats* event = device->add_node_stats();
  event->set_node_name(kRunGraph);
  event->set_timeline_label(absl::StrCat(kRunGraph, " at ", program_->parts[index].peer->name));
  SetTimes(start_nanos, NowNanos(), event);
  MutexLock lock(&mu_);
  stats_.push_back(std::move(stats));
}

void MasterStep::RunAtHome(int index, net::IncomingCall* from) {
  const ProgramPart& part = program_->parts[index];
  PartRun run{.graph = part.graph, .step_id = step_id_, .rendezvous = rendezvous_};
  run.feeds.reserve(part.home_feeds.size());
  for (const int feed : part.home_feeds) run.feeds.push_back(feeds_[feed]);
  if (program_->is_local()) feeds_.clear();  // so that the plan may reuse their memory
  run.num_fetches = part.home_fetches.size();
  run.trace = trace_;
  run.cancellation = &cancellation_;
  run.owner = shared_from_this();
  run.handover = handover_;
  run.from = from;
  run.run = run_;
  run.collective_step = collective_step_;
  session_->options_.worker->Run(std::move(run), [self = shared_from_this(), index](PartResult result) {
    const ProgramPart& part = self->program_->parts[index];
    if (result.status.ok()) {
      for (size_t i = 0; i < part.home_fetches.size(); ++i) {
        self->result_.fetches[part.home_fetches[i]] = std::move(result.fetches[i]);
      }
    }
    if (self->trace_ || self->partition_graphs_) {
      MutexLock lock(&self->mu_);
      if (self->trace_) self->stats_.push_back(std::move(result.step_stats));
      if (self->partition_graphs_) self->graphs_.push_back(ExportGraphDef(part.graph->part.plan->graph()));
    }
    self->OnPart(index, result.status);
  });
}

void MasterStep::Note(const Status& status) {
  MutexLock lock(&mu_);
  const auto rank = [](const Status& s) { return s.ok() ? 0 : absl::IsCancelled(s) ? 1 : IsDerived(s) ? 2 : 3; };
  if (rank(status) > rank(status_)) status_ = status;
}

void MasterStep::Fail(const Status& why) {
  Note(why);
  cancellation_.StartCancel(why);
}

void MasterStep::OnPart(int index, Status status) {
  if (!program_->is_local()) {
    MutexLock lock(&mu_);
    awaited_[index] = false;
  }
  if (!status.ok()) Fail(status);
  parts_.Arrive();
}

void MasterStep::End() {
  // This may run in the timer's own callback, which must not wait for itself.
  if (timer_ != 0 && !timed_out_.load()) session_->options_.timers->Cancel(timer_);
  if (outer_ != nullptr) LetGo(outer_, outer_token_);
  Status status;
  {
    MutexLock lock(&mu_);
    status = WithoutDerivedMark(status_);
    for (pb::StepStats& stats : stats_) Join(std::move(stats), result_.metadata.mutable_step_stats());
    for (pb::GraphDef& graph : graphs_) *result_.metadata.add_partition_graphs() = std::move(graph);
  }
  // If the step was ended from outside, that reason takes precedence over the errors of its parts. Those may be
  // UNAVAILABLE: a task that waits for a tensor of a cancelled part cannot know why it was cancelled.
  if (!status.ok() && cancellation_.IsCancelled()) {
    const Status why = cancellation_.status();
    const bool felt = absl::IsCancelled(status) || (ended_from_outside_.load() && absl::IsUnavailable(status));
    if (absl::IsDeadlineExceeded(why) ||
        (felt && (absl::IsUnavailable(why) || absl::IsAborted(why) || absl::IsCancelled(why)))) {
      const bool same = status.code() == why.code();
      status = Status(why.code(),
                      absl::StrCat(why.message(), same ? "" : "; it was waiting in: ", same ? "" : status.message()));
    }
  }
  if (rendezvous_) {
    if (!keeps_tensors_ || !status.ok()) session_->options_.worker->steps().Forget(step_id_);
    for (const ProgramPart& part : program_->parts) {
      if (part.peer == nullptr) continue;
      if (status.ok() && part.speaks_millrace) continue;
      if (status.ok()) {
        part.peer->worker->CleanupGraph({.timeout = absl::Seconds(10)}, step_id_, [](Status) {});
      } else {
        session_->options_.ended_steps->Tell(*part.peer, step_id_);
      }
      // A part may have ended before another one failed: who waits for its buffers learns of it by the other id.
      if (collective_step_ != 0)
        part.peer->worker->CleanupGraph({.timeout = absl::Seconds(10)}, collective_step_, [](Status) {});
    }
  }
  if (status.ok()) session_->CountFinished(since_, session_->options_.worker->task().clock()->Now());
  const std::shared_ptr<MasterSession> session = session_;
  Done done = std::move(done_);
  MasterSession::StepResult result = std::move(result_);
  session->OnStepEnded(this);
  if (status.ok()) {
    done(std::move(result));
  } else {
    done(std::move(status));
  }
}

Awaited MasterStep::PeerOf(const ProgramPart& part) {
  return {.task = part.peer->name,
          .address = part.peer->address,
          .worker = part.peer->worker,
          .incarnation = part.incarnation};
}

void MasterStep::ListAwaited(std::vector<Awaited>* peers) const {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < awaited_.size(); ++i) {
    const ProgramPart& part = program_->parts[i];
    if (awaited_[i] && part.peer != nullptr) peers->push_back(PeerOf(part));
  }
}

void MasterStep::ListPeers(std::vector<Awaited>* peers) const {
  for (const ProgramPart& part : program_->parts) {
    if (part.peer != nullptr) peers->push_back(PeerOf(part));
  }
}

bool MasterStep::DependsOn(const Awaited& lost, const Status& why) const {
  std::vector<Awaited> peers;
  ListPeers(&peers);
  return std::any_of(peers.begin(), peers.end(), [&](const Awaited& peer) { return EndsWait(lost, why, peer); });
}

}  // namespace millrace
