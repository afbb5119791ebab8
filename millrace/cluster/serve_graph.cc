// The peer's side of a call that streams a step.
#include <utility>

#include "millrace/cluster/part_execution.h"
#include "millrace/cluster/worker.h"
#include "millrace/graph/graph_def.h"
#include "millrace/net/transport.h"

namespace millrace {

StatusOr<PartRun> Worker::BeginServed(const CallControl& control, StepStart* start, const std::shared_ptr<net::IncomingCall>& call) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerSession> session, FindSession(start->session_handle, /*created=*/true));
  session->lease()->Touch(*call);
  PartRun run;
  MR_ASSIGN_OR_RETURN(run.graph, session->Find(start->graph_handle));
  const std::shared_ptr<const StepEdges>& edges = run.graph->edges;
  if (edges != nullptr && edges->tasks.size() != 1) return InvalidArgument("the graph has numbered edges with ", edges->tasks.size(), " tasks; it cannot be streamed");
  if (start->feeds.size() != static_cast<size_t>(edges == nullptr ? 0 : edges->num_feeds)) {
    return InvalidArgument("step ", start->step_id, " is fed ", start->feeds.size(), " tensors; its graph takes ", edges == nullptr ? 0 : edges->num_feeds);
  }
  run.step_id = start->step_id;
  run.rendezvous = FindStep(start->step_id, /*keep=*/false, 0);
  run.trace = start->record_timeline;
  run.cancellation = control.cancellation;
  run.owner = control.owner;
  run.from = control.from;
  run.on_line = true;
  MR_RETURN_IF_ERROR(BeginRunGraph(start->step_id, start->session_handle));
  if (edges == nullptr) return run;
  run.rendezvous->UseEdges(edges);
  run.rendezvous->OpenLine(0, /*answers=*/true, run.trace);
  run.rendezvous->SetLine(0, {.incoming = call});
  if (Status status = run.rendezvous->Arrive(0, std::move(start->feeds)); !status.ok()) {
    (void)run.rendezvous->TakeHeld(0);
    NoteRan(start->step_id, *run.rendezvous, false);
    return status;
  }
  return run;
}

void Worker::ServeGraph(const CallControl& control, std::shared_ptr<net::IncomingCall> call) {
  StatusOr<StepStart> start = DecodeStepStart(call->request(), Allocator::Heap());
  call->request() = net::Bytes();
  if (!start.ok()) return call->Reply(start.status());
  StatusOr<PartRun> run = BeginServed(control, &*start, call);
  if (!run.ok()) return call->Reply(run.status());
  const RefPtr<StepRendezvous> rendezvous = run->rendezvous;
  const std::shared_ptr<RegisteredGraph> graph = run->graph;
  if (graph->edges != nullptr) {
    call->OnMessage([rendezvous, graph, weak = std::weak_ptr(call)](const net::Bytes& message) {
      const std::shared_ptr<net::IncomingCall> call = weak.lock();
      if (call == nullptr) return;
      if (graph->runs_long.load(std::memory_order_relaxed)) call->RunsLong();
      StatusOr<SteppedTensors> tensors = DecodeTensors(message, Allocator::Heap());
      const Status status = tensors.ok() ? rendezvous->Arrive(0, *std::move(tensors)) : tensors.status();
      if (!status.ok()) call->cancellation()->StartCancel(status);
    });
  }
  const bool wants_graph = start->record_partition_graphs;
  const auto end = [self = shared_from_this(), rendezvous, graph, call = std::move(call), step_id = start->step_id, wants_graph](PartResult result) {
    StepEnd end{.status = CauseOf(std::move(result.status), call->cancellation()), .step_stats = std::move(result.step_stats)};
    if (wants_graph) end.partition_graphs.push_back(ExportGraphDef(graph->plan->graph()));
    if (graph->edges != nullptr) {
      StatusOr<SteppedTensors> held = rendezvous->TakeHeld(0);
      if (end.status.ok()) end.status = held.status();
      if (end.status.ok()) end.tensors = *std::move(held);
    }
    if (end.step_stats.dev_stats_size() > 0) end.sent_micros = absl::ToUnixMicros(self->options_.clock->Now());
    StatusOr<net::Bytes> answer = EncodeStepEnd(end);
    self->NoteRan(step_id, *rendezvous, end.status.ok() && answer.ok());
    call->Reply(std::move(answer));
  };
  const bool repeats = start->may_repeat && graph->edges == nullptr && graph->late_reads.empty() && !run->trace && !wants_graph;
  repeats ? Repeat(*std::move(run), end) : Run(*std::move(run), end);
}

}  // namespace millrace
