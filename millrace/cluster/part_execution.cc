// One part of a step at work on this task.
#include <atomic>
#include <chrono>
#include <utility>

#include "millrace/base/run_next.h"
#include "millrace/cluster/let_go.h"
#include "millrace/cluster/part_execution.h"
#include "millrace/net/transport.h"

namespace millrace {
namespace {

// To work so long on the thread that brings calls keeps others' calls waiting.
constexpr std::chrono::steady_clock::duration kLong = std::chrono::microseconds(200);

}  // namespace

Worker::PartExecution::PartExecution(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done)
    : worker_(std::move(worker)), run_(std::move(run)), done_(std::move(done)), since_(worker_->options_.clock->Now()) {
  const WorkerOptions& options = worker_->options_;
  step_.step_id = run_.step_id;
  step_.resources = run_.graph->session->resources().get();
  step_.rendezvous = run_.rendezvous.get();
  step_.cancellation = run_.cancellation;
  step_.inter_op = options.inter_op;
  step_.step_resources = &step_resources_;
  step_.waits = options.waits.get();
  step_.files = options.files;
  step_.functions = run_.graph->functions.get();
  if (run_.trace) stats_ = std::make_unique<StepStatsCollector>(options.clock);
  result_.fetches.resize(run_.num_fetches + run_.graph->late_reads.size());
}

void Worker::PartExecution::Start() {
  if (run_.rendezvous) {
    run_.rendezvous->Attach(run_.graph->session->peers(), stats_.get(), run_.graph->receives);
    // What fails or cancels the step ends its waits here, and whoever waits for its tensors is told the same.
    token_ = run_.cancellation->NewToken();
    // It may run when this is no more.
    const bool registered = run_.cancellation->Register(
        token_, [rendezvous = run_.rendezvous, cancellation = run_.cancellation, line_of = run_.on_line ? worker_ : nullptr, step_id = run_.step_id] {
          Status why = cancellation->status();
          if (line_of != nullptr && absl::IsCancelled(why)) {
            why = Unavailable("step ", step_id, " on ", line_of->options_.task.name(), " was given up by its master or is cut off from it: ", why.message());
          }
          rendezvous->Abort(std::move(why));
        });
    if (!registered) {
      End(run_.cancellation->status());
      return;
    }
    worker_->liveness_->Poke();
  }
  {
    MutexLock lock(&worker_->mu_);
    if (worker_->going_down_.ok()) {
      next_ = worker_->running_;
      if (next_ != nullptr) next_->previous_ = this;
      worker_->running_ = this;
      listed_ = true;
    }
  }
  if (!listed_) {
    End(Unavailable("task ", worker_->options_.task.name(), " is going down"));
    return;
  }
  if (run_.rendezvous) run_.rendezvous->FetchGroups();
  arena_ = worker_->TakeArena();
  const std::shared_ptr<RegisteredGraph> graph = run_.graph;  // the part may have ended before RunAsync returns
  const bool ran_long = graph->runs_long.load(std::memory_order_relaxed);
  if (ran_long && run_.from != nullptr) run_.from->RunsLong();
  const auto began = std::chrono::steady_clock::now();
  run_.graph->plan->RunAsync(
      {.step = &step_, .feeds = run_.feeds, .allocator = arena_.get(), .stats = stats_.get()},
      absl::MakeSpan(result_.fetches), [this](Status status) { End(std::move(status)); });
  const bool runs_long = std::chrono::steady_clock::now() - began > kLong;
  if (runs_long != ran_long) graph->runs_long.store(runs_long, std::memory_order_relaxed);
}

Status Worker::PartExecution::SendLateReads() {
  const std::vector<LateRead>& reads = run_.graph->late_reads;
  for (size_t i = 0; i < reads.size(); ++i) {
    RendezvousItem item{std::move(result_.fetches[run_.num_fetches + i]), false};
    MR_RETURN_IF_ERROR(reads[i].slot < 0 ? run_.rendezvous->Send(reads[i].key, std::move(item)) : run_.rendezvous->SendSlot(reads[i].slot, reads[i].key, std::move(item)));
  }
  result_.fetches.resize(run_.num_fetches);
  return absl::OkStatus();
}

void Worker::PartExecution::End(Status status) {
  if (token_ != 0) LetGo(run_.cancellation, token_);
  if (status.ok()) status = SendLateReads();
  // Those who wait for tensors that will not come are told why.
  if (!status.ok() && run_.rendezvous) run_.rendezvous->Abort(status);
  if (stats_ != nullptr && run_.rendezvous) run_.rendezvous->Detach();
  if (stats_ != nullptr) stats_->ToProto(&result_.step_stats);
  absl::AnyInvocable<void()> on_idle;
  if (listed_) {
    MutexLock lock(&worker_->mu_);
    if (previous_ != nullptr) {
      previous_->next_ = next_;
    } else {
      worker_->running_ = next_;
    }
    if (next_ != nullptr) next_->previous_ = previous_;
    if (worker_->running_ == nullptr) on_idle = std::exchange(worker_->on_idle_, nullptr);
  }
  if (status.ok()) worker_->parts_finished_.Count(worker_->options_.clock->Now());
  if (arena_) worker_->GiveBack(std::move(arena_));
  result_.status = std::move(status);
  if (!result_.status.ok()) result_.fetches.clear();
  PartResult result = std::move(result_);
  absl::AnyInvocable<void(PartResult)> done = std::move(done_);
  delete this;
  done(std::move(result));
  if (on_idle != nullptr) on_idle();
}

void Worker::Shutdown(const Status& why, absl::AnyInvocable<void()> idle) {
  std::vector<RefPtr<StepRendezvous>> steps;
  std::vector<std::pair<std::shared_ptr<void>, CancellationManager*>> running;
  leases_->Stop();
  {
    MutexLock lock(&mu_);
    going_down_ = why;
    if (running_ != nullptr) on_idle_ = std::exchange(idle, nullptr);
    steps = Rendezvous();
    for (const PartExecution* p = running_; p != nullptr; p = p->next_) running.emplace_back(p->run_.owner, p->run_.cancellation);
  }
  for (const RefPtr<StepRendezvous>& step : steps) step->Abort(why);
  for (auto& [owner, cancellation] : running) cancellation->StartCancel(why);
  if (idle != nullptr) idle();
}

void Worker::Run(PartRun run, absl::AnyInvocable<void(PartResult)> done) {
  (new PartExecution(shared_from_this(), std::move(run), std::move(done)))->Start();
}

namespace {

// Lives by itself until a run fails.
class RepeatedPart : public std::enable_shared_from_this<RepeatedPart> {
 public:
  RepeatedPart(std::shared_ptr<Worker> worker, PartRun run, absl::AnyInvocable<void(PartResult)> done)
      : worker_(std::move(worker)), run_(std::move(run)), done_(std::move(done)) {}

  void Run() {
    step_.store(Step::kStarts);
    worker_->Run(run_, [self = shared_from_this()](PartResult result) {
      if (!result.status.ok()) return self->done_(std::move(result));
      self->run_.from = nullptr;  // its handler has ended, or will have when Run is next called
      // What had to wait goes on where it was woken.
      if (self->step_.exchange(Step::kEnded) == Step::kStarted) RunNext(self->pool(), [self] { self->Run(); });
    });
    // What never waits would not let go of this thread, nor of its stack.
    if (step_.exchange(Step::kStarted) == Step::kEnded) pool()->Schedule([self = shared_from_this()] { self->Run(); });
  }

 private:
  enum class Step { kStarts, kStarted, kEnded };

  Scheduler* pool() const { return worker_->options().inter_op; }

  const std::shared_ptr<Worker> worker_;
  PartRun run_;
  absl::AnyInvocable<void(PartResult)> done_;
  std::atomic<Step> step_{Step::kStarts};
};

}  // namespace

void Worker::Repeat(PartRun run, absl::AnyInvocable<void(PartResult)> done) {
  std::make_shared<RepeatedPart>(shared_from_this(), std::move(run), std::move(done))->Run();
}

std::vector<RunningPart> Worker::ListRunning() const {
  std::vector<RunningPart> parts;
  MutexLock lock(&mu_);
  for (const PartExecution* p = running_; p != nullptr; p = p->next_) {
    parts.push_back({.step_id = p->run_.step_id, .session = p->run_.graph->session->handle(), .since = p->since_});
  }
  return parts;
}

Status CauseOf(Status felt, CancellationManager* cancellation) {
  if (!absl::IsCancelled(felt) || !cancellation->IsCancelled()) return felt;
  const Status why = cancellation->status();
  return absl::IsUnavailable(why) ? Unavailable(why.message(), "; it was waiting in: ", felt.message()) : felt;
}

}  // namespace millrace
