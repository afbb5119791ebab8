#include "millrace/cluster/worker/streamed_part.h"

#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/graph/graph_def.h"

namespace millrace {

StatusOr<PartRun> StreamedPart::Begin(const CallControl& control, StepStart* start) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerSession> session,
                      worker_->sessions().Find(start->session_handle, /*created=*/true));
  session->lease()->Touch(*call_);
  PartRun run;
  MR_ASSIGN_OR_RETURN(run.graph, session->Find(start->graph_handle));
  const std::shared_ptr<const StepEdges>& edges = run.graph->edges;
  if (edges != nullptr && edges->tasks.size() != 1)
    return InvalidArgument("the graph has numbered edges with ", edges->tasks.size(), " tasks; it cannot be streamed");
  if (start->feeds.size() != static_cast<size_t>(edges == nullptr ? 0 : edges->num_feeds)) {
    return InvalidArgument("step ", start->step_id, " is fed ", start->feeds.size(), " tensors; its graph takes ",
                           edges == nullptr ? 0 : edges->num_feeds);
  }
  run.step_id = start->step_id;
  run.trace = start->record_timeline;
  run.cancellation = control.cancellation;
  run.owner = control.owner;
  run.handover = control.handover;
  run.from = control.from;
  run.on_line = true;
  run.run = start->run;
  run.collective_step = start->collective_step;
  MR_ASSIGN_OR_RETURN(run.rendezvous, worker_->steps().BeginRun(start->step_id, start->session_handle));
  if (edges == nullptr) return run;
  run.rendezvous->UseEdges(edges);
  run.rendezvous->OpenLine(0, /*answers=*/true, run.trace);
  run.rendezvous->SetLine(0, {.incoming = {call_, call_->stream()}});
  if (Status status = run.rendezvous->Arrive(0, std::move(start->feeds)); !status.ok()) {
    (void)run.rendezvous->TakeHeld(0);
    worker_->steps().NoteRan(start->step_id, *run.rendezvous, false);
    return status;
  }
  return run;
}

void StreamedPart::Serve(const CallControl& control) {
  StatusOr<StepStart> start = DecodeStepStart(call_->request(), Allocator::Heap());
  call_->request() = net::Bytes();
  if (!start.ok()) return call_->Reply(start.status());
  StatusOr<PartRun> run = Begin(control, &*start);
  if (!run.ok()) return call_->Reply(run.status());
  rendezvous_ = run->rendezvous;
  graph_ = run->graph;
  step_id_ = start->step_id;
  wants_graph_ = start->record_partition_graphs;
  if (graph_->edges != nullptr) {
    // The call holds this callback, so the callback does not hold the call.
    call_->stream()->OnMessage(
        [rendezvous = rendezvous_, graph = graph_, weak = std::weak_ptr(call_)](const net::Bytes& message) {
          const std::shared_ptr<net::IncomingCall> call = weak.lock();
          if (call == nullptr) return;
          if (graph->runs_long.load(std::memory_order_relaxed)) call->RunsLong();
          const Status status = CatchExceptions([&]() -> Status {
            MR_ASSIGN_OR_RETURN(SteppedTensors tensors, DecodeTensors(message, Allocator::Heap()));
            return rendezvous->Arrive(0, std::move(tensors));
          });
          if (!status.ok()) call->cancellation()->StartCancel(status);
        });
  }
  const bool repeats =
      start->may_repeat && graph_->edges == nullptr && graph_->last_fetches.empty() && !run->trace && !wants_graph_;
  auto end = [self = shared_from_this()](PartResult result) { self->End(std::move(result)); };
  repeats ? worker_->Repeat(*std::move(run), std::move(end)) : worker_->Run(*std::move(run), std::move(end));
}

void StreamedPart::End(PartResult result) {
  StepEnd end{.status = CauseOf(std::move(result.status), call_->cancellation()),
              .step_stats = std::move(result.step_stats)};
  if (wants_graph_) end.partition_graphs.push_back(ExportGraphDef(graph_->part.plan->graph()));
  if (graph_->edges != nullptr) {
    StatusOr<SteppedTensors> held = rendezvous_->TakeHeld(0);
    if (end.status.ok()) end.status = held.status();
    if (end.status.ok()) end.tensors = *std::move(held);
  }
  if (end.step_stats.dev_stats_size() > 0) end.sent_micros = absl::ToUnixMicros(worker_->task().clock()->Now());
  StatusOr<net::Bytes> answer = EncodeStepEnd(end);
  worker_->steps().NoteRan(step_id_, *rendezvous_, end.status.ok() && answer.ok());
  call_->Reply(std::move(answer));
}

}  // namespace millrace
