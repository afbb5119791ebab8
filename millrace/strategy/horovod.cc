#include "millrace/strategy/horovod.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/base/mutex.h"
#include "millrace/collective/reduction.h"
#include "millrace/strategy/horovod/compression.h"
#include "millrace/strategy/horovod/engine.h"
#include "millrace/strategy/horovod/rendezvous.h"

namespace millrace::hvd {
namespace {

using Kind = NamedCollective::Kind;

// The engine of this process.
struct Process {
  Mutex mu;
  std::shared_ptr<Engine> engine ABSL_GUARDED_BY(mu);
  bool starting ABSL_GUARDED_BY(mu) = false;
  std::atomic<int64_t> unnamed[3] = {};
};

Process& This() {
  static Process* const process = new Process;
  return *process;
}

StatusOr<std::shared_ptr<Engine>> Running(absl::string_view caller) {
  Process& process = This();
  MutexLock lock(&process.mu);
  if (process.engine != nullptr) return process.engine;
  return FailedPrecondition("hvd::", caller, " was called before hvd::Init");
}

int FromEngine(int (Engine::*number)() const) {
  const StatusOr<std::shared_ptr<Engine>> engine = Running("Rank");
  return engine.ok() ? ((**engine).*number)() : -1;
}

std::string NameOf(Kind kind, const std::string& name) {
  if (!name.empty()) return name;
  return absl::StrCat(KindName(kind), ".", ++This().unnamed[static_cast<int>(kind)]);
}

}  // namespace

struct Handle::State {
  Notification over;
  StatusOr<Tensor> result;
};

bool Handle::IsDone() const { return state_->over.HasBeenNotified(); }

StatusOr<Tensor> Handle::Wait() const {
  state_->over.Wait();
  return state_->result;
}

namespace {

Handle Submit(absl::string_view caller, NamedCollective operation, Compression compression = Compression::kNone) {
  auto state = std::make_shared<Handle::State>();
  const StatusOr<std::shared_ptr<Engine>> engine = Running(caller);
  const auto end = [state](StatusOr<Tensor> result) {
    state->result = std::move(result);
    state->over.Notify();
  };
  if (!engine.ok()) {
    end(engine.status());
    return Handle(state);
  }
  operation.name = NameOf(operation.kind, operation.name);
  const DType dtype = operation.tensor.dtype();
  if (compression == Compression::kFp16) operation.tensor = Compressed(operation.tensor);
  (*engine)->Submit(std::move(operation), [end, dtype](StatusOr<Tensor> result) {
    end(result.ok() ? Decompressed(*std::move(result), dtype) : std::move(result));
  });
  return Handle(state);
}

}  // namespace

Status Init(InitOptions options) {
  Process& process = This();
  {
    MutexLock lock(&process.mu);
    if (process.engine != nullptr || process.starting) return FailedPrecondition("hvd::Init has been called before");
    process.starting = true;
  }
  if (const char* path = std::getenv("HOROVOD_TIMELINE"); path != nullptr && options.timeline.empty())
    options.timeline = path;
  EngineOptions engine_options{.fusion_bytes = options.fusion_bytes,
                               .cycle_time = options.cycle_time,
                               .stall_warning = options.stall_warning,
                               .timeline = options.timeline};
  StatusOr<std::shared_ptr<Engine>> engine = Engine::Start(
      [&]() -> StatusOr<std::unique_ptr<Carrier>> { return Meet(options.carrier, std::move(options.workers)); },
      std::move(engine_options));
  MutexLock lock(&process.mu);
  process.starting = false;
  MR_RETURN_IF_ERROR(engine.status());
  process.engine = *std::move(engine);
  for (auto& count : process.unnamed) count = 0;
  NamedCollectives::Install("", process.engine);
  return absl::OkStatus();
}

Status Shutdown() {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Running("Shutdown"));
  const Status status = engine->Shutdown();
  Process& process = This();
  std::shared_ptr<Engine> last;
  MutexLock lock(&process.mu);
  last.swap(process.engine);
  return status;
}

bool IsInitialized() { return Running("IsInitialized").ok(); }
int Rank() { return FromEngine(&Engine::rank); }
int Size() { return FromEngine(&Engine::size); }
int LocalRank() { return FromEngine(&Engine::local_rank); }
int LocalSize() { return FromEngine(&Engine::local_size); }

Handle AllreduceAsync(const Tensor& tensor, const AllreduceOptions& options) {
  return Submit("Allreduce",
                {.kind = Kind::kAllreduce,
                 .name = options.name,
                 .tensor = tensor,
                 .reduction = std::string(collective::ReductionName(options.op))},
                options.compression);
}
Handle AllgatherAsync(const Tensor& tensor, const std::string& name) {
  return Submit("Allgather", {.kind = Kind::kAllgather, .name = name, .tensor = tensor});
}
Handle BroadcastAsync(const Tensor& tensor, int root_rank, const std::string& name) {
  return Submit("Broadcast", {.kind = Kind::kBroadcast, .name = name, .tensor = tensor, .root = root_rank});
}

StatusOr<Tensor> Allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  return AllreduceAsync(tensor, options).Wait();
}
StatusOr<Tensor> Allgather(const Tensor& tensor, const std::string& name) {
  return AllgatherAsync(tensor, name).Wait();
}
StatusOr<Tensor> Broadcast(const Tensor& tensor, int root_rank, const std::string& name) {
  return BroadcastAsync(tensor, root_rank, name).Wait();
}
Status Barrier() { return Allreduce(Tensor::Scalar<uint8_t>(0), {.name = "barrier", .op = kMax}).status(); }

StatusOr<int> Join() {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Running("Join"));
  return engine->Join();
}

}  // namespace millrace::hvd
