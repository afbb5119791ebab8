#include "millrace/task/task.h"

#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "millrace/base/rooted_files.h"
#include "millrace/task/failed_device.h"
#include "millrace/task/local_devices.h"

namespace millrace {
namespace {

// Calls `done` when these devices have done all that is enqueued on them, with the first error.
void WhenDevicesDone(absl::Span<Device* const> devices, Status status, absl::AnyInvocable<void(Status)> done) {
  if (devices.empty()) return done(std::move(status));
  devices[0]->stream()->WhenDone(
      [rest = devices.subspan(1), status = std::move(status), done = std::move(done)](Status own) mutable {
        status.Update(own);
        WhenDevicesDone(rest, std::move(status), std::move(done));
      });
}

// An attempt that a later one has replaced says so.
Status WhyCancelled(Status status, const CancellationManager& cancellation) {
  if (!absl::IsCancelled(status) || !absl::IsAborted(cancellation.status())) return status;
  return cancellation.status();
}

StatusOr<std::vector<std::shared_ptr<Device>>> DevicesFor(const TaskOptions& options) {
  return LocalDevices({.task = options.name,
                       .cpu_devices = options.cpu_devices,
                       .gpu_devices = options.gpu_devices,
                       .gpus = options.gpus,
                       .intra_op_threads = options.intra_op_threads});
}

}  // namespace

StatusOr<std::shared_ptr<Task>> Task::Make(TaskOptions options) {
  if (options.devices.empty()) {
    MR_ASSIGN_OR_RETURN(options.devices, DevicesFor(options));
  }
  return std::make_shared<Task>(std::move(options));
}

Task::Task(TaskOptions options)
    : options_(std::move(options)),
      devices_(options_.devices),
      resources_(options_.resources != nullptr ? options_.resources : std::make_shared<ResourceManager>()),
      waits_(options_.waits != nullptr ? options_.waits : std::make_shared<WaitRegistry>(options_.clock)),
      files_(options_.files != nullptr ? options_.files : FileSystem::Posix()),
      inter_op_(options_.inter_op) {
  if (devices_.empty()) devices_ = DevicesFor(options_).value();
  if (!options_.file_roots.empty() || options_.no_files) {
    rooted_files_ = std::make_shared<RootedFileSystem>(options_.file_roots);
    files_ = rooted_files_.get();
  }
  if (options_.file_threads > 0) {
    file_threads_ = std::make_shared<FileThreads>(FileThreadsOptions{.max_threads = options_.file_threads,
                                                                     .waits = waits_,
                                                                     .files = rooted_files_,
                                                                     .scheduler = options_.file_operations,
                                                                     .timers = options_.timers});
  }
}

Scheduler* Task::inter_op() {
  if (Scheduler* const pool = inter_op_.load(std::memory_order_acquire); pool != nullptr) return pool;
  MutexLock lock(&threads_mu_);
  if (threads_ == nullptr) {
    threads_ = std::make_unique<ThreadPool>("inter_op", ThreadCount(options_.inter_op_threads));
    inter_op_.store(threads_.get(), std::memory_order_release);
  }
  return threads_.get();
}

void Task::StopThreads() {
  std::unique_ptr<ThreadPool> threads;  // destroyed without the lock: closures that still run may ask for the pool
  MutexLock lock(&threads_mu_);
  threads.swap(threads_);
}

std::shared_ptr<TaskSession> Task::NewSession(TaskSessionOptions options) const {
  if (options.devices.empty()) options.devices = devices_;
  if (options.resources == nullptr) options.resources = resources_;
  if (options.memory_limit == 0) options.memory_limit = options_.session_memory_limit;
  return std::make_shared<TaskSession>(std::move(options));
}

CompileOptions Task::OptionsFor(const TaskSession& session, const PartOptions& options) const {
  CompileOptions compile;
  compile.devices = session.device_pointers();
  compile.allow_soft_placement = options.allow_soft_placement;
  compile.passes = options.passes;
  compile.on_placed = options.on_placed;
  compile.memory = session.memory();
  return compile;
}

std::shared_ptr<FunctionTable> Task::NewFunctions(const TaskSession& session, const PartOptions& options) const {
  return std::make_shared<FunctionTable>(OptionsFor(session, options));
}

void Task::PlaceWhole(const TaskSession& session, Graph* graph, const PartOptions& options) const {
  const auto& devices = session.devices();
  if (absl::c_all_of(devices, [](const auto& device) { return device->shares_host_memory(); })) return;
  PlaceGraph(graph, OptionsFor(session, options)).IgnoreError();
}

StatusOr<CompiledPart> Task::Compile(std::shared_ptr<TaskSession> session, std::unique_ptr<Graph> graph,
                                     PassContext signature, const PartOptions& options) const {
  CompiledPart part{.session = std::move(session), .functions = options.functions, .plan = nullptr, .owner = nullptr};
  if (part.functions == nullptr) {
    part.functions = NewFunctions(*part.session, options);
    part.functions->UseLibrary(*graph);
  }
  CompileOptions compile = OptionsFor(*part.session, options);
  compile.make_kernel = [&](const Node& node, Device* device) { return part.session->MakeKernel(node, device); };
  MR_ASSIGN_OR_RETURN(part.plan, CompileGraph(std::move(graph), std::move(signature), compile));
  part.owner =
      std::make_shared<std::tuple<std::shared_ptr<TaskSession>, std::shared_ptr<FunctionTable>, std::shared_ptr<Plan>>>(
          part.session, part.functions, part.plan);
  return part;
}

StatusOr<ActivePart*> Task::Begin(const CompiledPart& part, const PartArgs& args) {
  MR_RETURN_IF_ERROR(CheckDevices(*part.plan));
  MR_ASSIGN_OR_RETURN(ActivePart* const active, running_.Enter({.step_id = args.step_id,
                                                                .session = part.session.get(),
                                                                .since = args.since,
                                                                .cancellation = args.cancellation,
                                                                .owner = args.owner}));
  StepContext& step = active->step;
  step.step_id = active->step_id;
  step.session = part.session->handle();
  step.run = nullptr;
  step.resources = part.session->resources().get();
  step.rendezvous = args.rendezvous;
  step.cancellation = active->cancellation;
  step.inter_op = part.plan->is_sequential() ? inter_op_.load(std::memory_order_acquire) : inter_op();
  step.step_resources = &active->step_resources.emplace();
  step.waits = waits_.get();
  step.files = files_;
  step.file_threads = file_threads_.get();
  step.owner = &part.owner;
  step.functions = part.functions.get();
  step.handover = args.handover;
  return active;
}

void Task::Attempt(ActivePart* active, const CompiledPart& part, const RunIdentity& run,
                   absl::AnyInvocable<void(Status)> go) {
  BeginAttempt(
      {.identity = run,
       .resources = part.session->resources(),
       .step_id = active->step_id,
       .cancellation = active->cancellation,
       .waits = waits_.get(),
       .pool = active->step.inter_op,
       .cancel_earlier = [this](const RunRecord& record, const Status& why) { running_.CancelRun(record, why); }},
      [this, active, go = std::move(go)](StatusOr<RunAttempt> attempt) mutable {
        if (!attempt.ok()) return go(attempt.status());
        active->attempt = *std::move(attempt);
        const RunRecord* const record = active->attempt.record.get();
        active->step.run = active->attempt.record.get();
        running_.SetRun(active, record);
        // A later attempt that came before this one could be cancelled.
        if (active->attempt.resources->runs().IsAwaited(*record)) {
          active->cancellation->StartCancel(Aborted("the run was started again: this attempt is given up"));
        }
        go(absl::OkStatus());
      });
}

Status Task::Run(const CompiledPart& part, const PartArgs& args, const StepLimits& limits, absl::Span<Tensor> fetches) {
  MR_ASSIGN_OR_RETURN(ActivePart* const active, Begin(part, args));
  Status status;
  {
    LimitWatch watch(active->cancellation);
    status = watch.Begin(limits);
    if (status.ok() && ABSL_PREDICT_FALSE(args.run.given())) {
      Notification begun;
      Attempt(active, part, args.run, [&](Status result) {
        status = std::move(result);
        begun.Notify();
      });
      begun.Wait();
    }
    if (status.ok()) {
      status = part.plan->Run(
          {.step = &active->step, .feeds = args.feeds, .allocator = active->arena.get(), .stats = args.stats}, fetches);
      // What the step has enqueued on devices is a part of it: the answer is true when it is given.
      for (Device* device : part.plan->stream_devices()) status.Update(device->stream()->Synchronize());
      status = NameFailedDevice(*part.plan, active->step_id, std::move(status));
      status = watch.Result(std::move(status));
    }
  }
  active->step_resources.reset();
  if (ABSL_PREDICT_TRUE(!active->attempt)) {
    running_.Leave(active, /*ended=*/true);
    return status;
  }
  status = WhyCancelled(std::move(status), *active->cancellation);
  const RunAttempt attempt = std::exchange(active->attempt, {});
  running_.Leave(active, /*ended=*/true);
  attempt.End();
  return status;
}

void Task::RunAsync(const CompiledPart& part, const PartArgs& args, absl::Span<Tensor> fetches,
                    absl::AnyInvocable<void(Status)> done) {
  StatusOr<ActivePart*> begun = Begin(part, args);
  if (!begun.ok()) return done(begun.status());
  ActivePart* const active = *begun;
  active->done = std::move(done);
  active->task = shared_from_this();
  const auto go = [active, plan = part.plan.get(), feeds = args.feeds, stats = args.stats, fetches] {
    plan->RunAsync({.step = &active->step, .feeds = feeds, .allocator = active->arena.get(), .stats = stats}, fetches,
                   [active, plan](Status status) {
                     if (ABSL_PREDICT_TRUE(plan->stream_devices().empty()))
                       return active->task->OnAsyncEnd(active, std::move(status));
                     WhenDevicesDone(plan->stream_devices(), std::move(status), [active, plan](Status result) {
                       result = NameFailedDevice(*plan, active->step_id, std::move(result));
                       active->task->OnAsyncEnd(active, std::move(result));
                     });
                   });
  };
  if (ABSL_PREDICT_TRUE(!args.run.given())) return go();
  Attempt(active, part, args.run, [active, go](Status status) {
    if (status.ok()) return go();
    active->task->OnAsyncEnd(active, std::move(status));
  });
}

void Task::OnAsyncEnd(ActivePart* active, Status status) {
  const std::shared_ptr<Task> self = std::move(active->task);
  absl::AnyInvocable<void(Status)> done = std::move(active->done);
  active->step_resources.reset();
  if (ABSL_PREDICT_FALSE(active->attempt)) status = WhyCancelled(std::move(status), *active->cancellation);
  const RunAttempt attempt = std::exchange(active->attempt, {});
  running_.Leave(active, /*ended=*/false);
  done(std::move(status));
  done = nullptr;  // releases what it holds before the task counts as idle
  if (ABSL_PREDICT_FALSE(attempt)) attempt.End();
  running_.Ended();
}

}  // namespace millrace
