// Parts at peers that are reached by calls that stream: the tensors between home and the peer travel on the call that runs the part.
#include <utility>

#include "millrace/cluster/master_step.h"

namespace millrace {

void MasterStep::OpenLines() {
  streamed_.assign(program_->parts.size(), false);
  for (const ProgramPart& part : program_->parts) {
    if (part.peer == nullptr && part.graph->edges != nullptr) rendezvous_->UseEdges(part.graph->edges);
  }
  for (size_t i = 0; i < program_->parts.size(); ++i) {
    const ProgramPart& part = program_->parts[i];
    if (part.peer == nullptr || !part.is_numbered || !part.peer->worker->streams()) continue;
    streamed_[i] = true;
    if (part.edges_task >= 0) rendezvous_->OpenLine(part.edges_task, /*answers=*/false, trace_);
  }
}

void MasterStep::StreamAtPeer(int index) {
  const ProgramPart& part = program_->parts[index];
  StepStart start{.session_handle = session_->handle(), .graph_handle = part.graph_handle, .step_id = step_id_};
  start.record_timeline = trace_;
  start.record_partition_graphs = partition_graphs_;
  // A limit is for one run, and so are statistics.
  start.may_repeat = may_repeat_ && program_->parts.size() == 1 && timeout_ == absl::InfiniteDuration() && !trace_ && !partition_graphs_;
  start.feeds.reserve(part.feeds.size());
  for (size_t i = 0; i < part.feeds.size(); ++i) {
    start.feeds.push_back({.number = part.feed_numbers[i], .item = {.tensor = feeds_[part.feeds[i].index]}});
  }
  StatusOr<net::Bytes> request = EncodeStepStart(start);
  if (!request.ok()) return OnPart(index, request.status());
  const int64_t start_nanos = trace_ ? NowNanos() : 0;
  RefPtr<net::OutgoingCall> call = part.peer->worker->StreamGraph(
      {.cancellation = &cancellation_}, *std::move(request),
      [self = shared_from_this(), index](net::Bytes message) { self->OnPushed(index, message); },
      [self = shared_from_this(), index, start_nanos](StatusOr<net::Bytes> answer) { self->OnStreamEnd(index, start_nanos, answer); });
  if (part.edges_task >= 0) rendezvous_->SetLine(part.edges_task, {.outgoing = std::move(call)});
}

void MasterStep::OnPushed(int index, const net::Bytes& message) {
  const ProgramPart& part = program_->parts[index];
  StatusOr<SteppedTensors> tensors = DecodeTensors(message, Allocator::Heap());
  Status status = tensors.status();
  if (status.ok() && part.edges_task < 0) status = InvalidArgument("no tensor is to come from there");
  if (status.ok()) status = rendezvous_->Arrive(part.edges_task, *std::move(tensors));
  if (status.ok()) return;
  status = WithPrefix(absl::StrCat("From ", part.peer->name, ": "), status);
  Fail(status);
}

void MasterStep::OnStreamEnd(int index, int64_t start_nanos, const StatusOr<net::Bytes>& answer) {
  if (!answer.ok()) return OnPart(index, answer.status());
  if (trace_) TraceCall(index, start_nanos);
  const ProgramPart& part = program_->parts[index];
  StatusOr<StepEnd> end = DecodeStepEnd(*answer, Allocator::Heap());
  if (!end.ok()) return OnPart(index, WithPrefix(absl::StrCat("From ", part.peer->name, ": "), end.status()));
  Status status = TakeAnswer(index, end->status, std::move(end->step_stats), std::move(end->partition_graphs));
  if (!status.ok()) return OnPart(index, status);
  // Fetches, and what rides.
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
    if (!result_.fetches[fetch.index].IsInitialized()) status = Internal(part.peer->name, " did not give ", program_->spec.fetches[fetch.index]);
  }
  if (part.edges_task >= 0) {
    if (status.ok()) status = rendezvous_->Arrive(part.edges_task, std::move(end->tensors));
    rendezvous_->EndLine(part.edges_task);
  } else if (!end->tensors.empty() && status.ok()) {
    status = Internal(part.peer->name, " sent a tensor that nobody waits for");
  }
  OnPart(index, status);
}

}  // namespace millrace
