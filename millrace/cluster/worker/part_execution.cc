#include "millrace/cluster/worker/part_execution.h"

#include <atomic>
#include <utility>

#include "millrace/cluster/step/let_go.h"
#include "millrace/cluster/worker/worker.h"

namespace millrace {
namespace {

// Working for longer on the thread that delivers calls would delay other calls.
constexpr std::chrono::steady_clock::duration kLong = std::chrono::microseconds(200);

}  // namespace

PartExecution::PartExecution(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done)
    : worker_(std::move(worker)), run_(std::move(run)), done_(std::move(done)) {
  if (run_.trace) stats_ = std::make_unique<StepStatsCollector>(worker_->task().clock());
  result_.fetches.resize(run_.num_fetches + run_.graph->last_fetches.size());
  if (run_.collective_step != 0) worker_->collectives().BeginPart(run_.step_id, run_.collective_step);
}

bool PartExecution::JoinStep() {
  run_.rendezvous->Attach(run_.graph->session->peers(), stats_.get(), run_.graph->receives, run_.handover);
  // A failure or cancellation of the step ends its waits here, and the waits of other tasks for its tensors, with the
  // same status.
  token_ = run_.cancellation->NewToken();
  // May run after this object is destroyed.
  const bool registered =
      run_.cancellation->Register(token_, [rendezvous = run_.rendezvous, cancellation = run_.cancellation,
                                           line_of = run_.on_line ? worker_ : nullptr, step_id = run_.step_id] {
        Status why = cancellation->status();
        if (line_of != nullptr && absl::IsCancelled(why)) {
          why = Unavailable("step ", step_id, " on ", line_of->task().name(),
                            " was given up by its master or is cut off from it: ", why.message());
        }
        rendezvous->Abort(std::move(why));
      });
  if (!registered) return false;
  worker_->liveness().Poke();
  run_.rendezvous->FetchGroups();
  return true;
}

void PartExecution::Start() {
  if (run_.rendezvous && !JoinStep()) return End(run_.cancellation->status());
  const std::shared_ptr<RegisteredGraph> graph = run_.graph;  // the part may have ended before RunAsync returns
  const bool ran_long = graph->runs_long.load(std::memory_order_relaxed);
  if (ran_long && run_.from != nullptr) run_.from->RunsLong();
  const PartArgs args{.step_id = run_.step_id,
                      .feeds = run_.feeds,
                      .rendezvous = run_.rendezvous.get(),
                      .cancellation = run_.cancellation,
                      .owner = run_.owner,
                      .since = worker_->task().clock()->Now(),
                      .stats = stats_.get(),
                      .handover = run_.handover.get(),
                      .run = run_.run};
  const auto began = std::chrono::steady_clock::now();
  worker_->task().RunAsync(graph->part, args, absl::MakeSpan(result_.fetches),
                           [this](Status status) { End(std::move(status)); });
  const bool runs_long = std::chrono::steady_clock::now() - began > kLong;
  if (runs_long != ran_long) graph->runs_long.store(runs_long, std::memory_order_relaxed);
}

Status PartExecution::SendLastFetches() {
  const std::vector<LastFetch>& last = run_.graph->last_fetches;
  for (size_t i = 0; i < last.size(); ++i) {
    RendezvousItem item{std::move(result_.fetches[run_.num_fetches + i]), false};
    MR_RETURN_IF_ERROR(last[i].slot < 0 ? run_.rendezvous->Send(last[i].key, std::move(item))
                                        : run_.rendezvous->SendSlot(last[i].slot, last[i].key, std::move(item)));
  }
  result_.fetches.resize(run_.num_fetches);
  return absl::OkStatus();
}

void PartExecution::End(Status status) {
  if (token_ != 0) LetGo(run_.cancellation, token_);
  if (status.ok()) status = SendLastFetches();
  // Fails the waits for tensors that will not come.
  if (!status.ok() && run_.rendezvous) run_.rendezvous->Abort(status);
  if (!status.ok()) worker_->collectives().FailStep(run_.step_id, status);
  if (run_.collective_step != 0) worker_->collectives().EndPart(run_.step_id);
  if (stats_ != nullptr && run_.rendezvous) run_.rendezvous->Detach();
  if (stats_ != nullptr) stats_->ToProto(&result_.step_stats);
  if (status.ok()) worker_->CountPart();
  result_.status = std::move(status);
  if (!result_.status.ok()) result_.fetches.clear();
  PartResult result = std::move(result_);
  absl::AnyInvocable<void(PartResult)> done = std::move(done_);
  delete this;
  done(std::move(result));
}

Status CauseOf(Status felt, CancellationManager* cancellation) {
  if (!absl::IsCancelled(felt) || !cancellation->IsCancelled()) return felt;
  const Status why = cancellation->status();
  return absl::IsUnavailable(why) ? Unavailable(why.message(), "; it was waiting in: ", felt.message()) : felt;
}

}  // namespace millrace
