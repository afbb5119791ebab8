#include "millrace/ops/collective/packed_operation.h"

#include <cstring>
#include <memory>
#include <utility>

#include "millrace/base/thread_pool.h"

namespace millrace {

// An operation in flight.
struct PackedCollectiveKernel::Pending {
  KernelContext* ctx;
  RefPtr<CollectiveExecutor> executor;
  Tensor memory;
  Kernel::Done done;
  CancellationManager::Token token = 0;
};

PackedCollectiveKernel::PackedCollectiveKernel(KernelInit& init) { init.Attr("key", &key_); }

StatusOr<Tensor> PackedCollectiveKernel::Memory(int64_t bytes) {
  constexpr size_t kMostKept = 2;
  MutexLock lock(&mu_);
  for (const Tensor& tensor : memory_) {
    if (tensor.num_elements() == bytes && tensor.RefCountIsOne()) return tensor;
  }
  MR_ASSIGN_OR_RETURN(Tensor made, Tensor::Make(DType::kUInt8, Shape({bytes})));
  if (memory_.size() >= kMostKept) memory_.erase(memory_.begin());
  memory_.push_back(made);
  return made;
}

void PackedCollectiveKernel::ComputeAsync(KernelContext& ctx, Done done) {
  StatusOr<RefPtr<CollectiveExecutor>> executor = CollectiveExecutor::Of(ctx);
  if (!executor.ok()) return done(executor.status());
  const int outputs = ctx.num_outputs();
  if (ctx.num_inputs() != outputs * num_parts()) {
    return done(InvalidArgument("there are ", ctx.num_inputs(), " values for ", num_parts(), " x ", outputs));
  }
  Packed packed{.dtype = ctx.input(0).dtype()};
  for (int i = 0; i < outputs; ++i) packed.count += ctx.input(i).num_elements();
  for (int i = outputs; i < ctx.num_inputs(); ++i) {
    if (ctx.input(i).shape() != ctx.input(i % outputs).shape()) {
      return done(InvalidArgument("value ", i, " is ", ctx.input(i).shape().ToString(), ", but value ", i % outputs,
                                  ", which it is added to, is ", ctx.input(i % outputs).shape().ToString()));
    }
  }
  // Each part begins at a multiple of a cache line.
  const int64_t part_bytes = (packed.count * static_cast<int64_t>(SizeOf(packed.dtype)) + 63) / 64 * 64;
  StatusOr<Tensor> memory = Memory(part_bytes * (num_parts() + (in_place() ? 0 : 1)));
  if (!memory.ok()) return done(memory.status());
  packed.result = reinterpret_cast<char*>(memory->raw<uint8_t>());
  packed.owner = memory->buffer();
  for (int part = 0; part < num_parts(); ++part) {
    char* to = packed.result + part_bytes * (part + (in_place() ? 0 : 1));
    packed.parts.push_back(to);
    for (int i = 0; i < outputs; ++i) {
      const Tensor& value = ctx.input(part * outputs + i);
      if (value.TotalBytes() > 0) std::memcpy(to, value.raw_data(), value.TotalBytes());
      to += value.TotalBytes();
    }
  }

  auto pending = std::make_shared<Pending>();
  *pending = {.ctx = &ctx, .executor = *std::move(executor), .memory = *std::move(memory), .done = std::move(done)};
  CancellationManager* const cancellation = ctx.cancellation();
  if (cancellation != nullptr) {
    pending->token = cancellation->NewToken();
    const bool registered = cancellation->Register(pending->token, [executor = pending->executor, cancellation,
                                                                    name = ctx.node().name()] {
      executor->Abort(WithPrefix(absl::StrCat("the step that waits for ", name, " ended: "), cancellation->status()));
    });
    if (!registered) return pending->done(cancellation->status());
  }
  // The result may come on a thread of the network, or on one that cancels: the step goes on with its own.
  const auto ended = [this, pending](const Status& status) {
    KernelContext& c = *pending->ctx;
    if (pending->token != 0) c.cancellation()->Deregister(pending->token);
    Kernel::Done go_on = std::move(pending->done);
    go_on(status.ok() ? Unpack(c, reinterpret_cast<const char*>(pending->memory.raw<const uint8_t>())) : status);
  };
  Scheduler* const threads = ctx.step().inter_op;
  Start(*pending->executor, packed, [ended, threads](Status status) {
    if (threads == nullptr) return ended(status);
    threads->Schedule([ended, status = std::move(status)] { ended(status); });
  });
}

Status PackedCollectiveKernel::Unpack(KernelContext& ctx, const char* result) const {
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(i, ctx.input(i).shape()));
    if (output->TotalBytes() > 0) std::memcpy(output->raw_data(), result, output->TotalBytes());
    result += output->TotalBytes();
  }
  return absl::OkStatus();
}

}  // namespace millrace
