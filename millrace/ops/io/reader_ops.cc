// The ops that use readers: reading, counts and state.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/ops/io/reader.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The queue of file names in input 1.
StatusOr<RefPtr<Queue>> NameQueue(const KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, ctx.resource<Queue>(1));
  if (queue->types().size() != 1) return InvalidArgument("Expected single component queue");
  if (queue->types()[0] != DType::kString) return InvalidArgument("Expected queue with single string component");
  return queue;
}

template <bool kUpTo>
class ReaderReadKernel : public AsyncKernel {
 public:
  explicit ReaderReadKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Reader>> reader = ctx.resource<Reader>(0);
    if (!reader.ok()) return done(reader.status());
    StatusOr<RefPtr<Queue>> queue = NameQueue(ctx);
    if (!queue.ok()) return done(queue.status());
    int64_t n = 1;
    if constexpr (kUpTo) {
      const Tensor& wanted = ctx.input(2);
      if (wanted.num_elements() != 1 || wanted.scalar<int64_t>() < 0) {
        return done(InvalidArgument("num_records must be one number that is not negative, got ", wanted.DebugString()));
      }
      n = wanted.scalar<int64_t>();
    }
    (*reader)->Read(CallingOp(ctx), *std::move(queue), n,
                    [&ctx, done = std::move(done)](StatusOr<Reader::Records> records) mutable {
                      if (!records.ok()) return done(records.status());
                      Emit(ctx, *std::move(records));
                      done(absl::OkStatus());
                    });
  }

 private:
  static void Emit(KernelContext& ctx, Reader::Records records) {
    std::vector<std::string>* const outputs[] = {&records.keys, &records.values};
    for (int i = 0; i < 2; ++i) {
      Tensor tensor(DType::kString, kUpTo ? Shape({static_cast<int64_t>(outputs[i]->size())}) : Shape());
      std::move(outputs[i]->begin(), outputs[i]->end(), tensor.data<std::string>());
      ctx.SetOutput(i, std::move(tensor));
    }
  }
};

template <int64_t (Reader::*kCount)() const>
class ReaderCountKernel : public Kernel {
 public:
  explicit ReaderCountKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Reader> reader, ctx.resource<Reader>(0));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(((*reader).*kCount)()));
    return absl::OkStatus();
  }
};

class ReaderSerializeStateKernel : public Kernel {
 public:
  explicit ReaderSerializeStateKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Reader> reader, ctx.resource<Reader>(0));
    MR_ASSIGN_OR_RETURN(std::string state, reader->Serialize());
    ctx.SetOutput(0, Tensor::Scalar(std::move(state)));
    return absl::OkStatus();
  }
};

class ReaderRestoreStateKernel : public AsyncKernel {
 public:
  explicit ReaderRestoreStateKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Reader>> reader = ctx.resource<Reader>(0);
    if (!reader.ok()) return done(reader.status());
    const Tensor& state = ctx.input(1);
    if (state.rank() != 0) {
      return done(InvalidArgument("Reader state must be scalar, but had shape: ", state.shape().ToString()));
    }
    (*reader)->Restore(CallingOp(ctx), state.scalar<std::string>(), std::move(done));
  }
};

class ReaderResetKernel : public AsyncKernel {
 public:
  explicit ReaderResetKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Reader>> reader = ctx.resource<Reader>(0);
    if (!reader.ok()) return done(reader.status());
    (*reader)->Reset(CallingOp(ctx), std::move(done));
  }
};

Status ReadUpToShape(ShapeContext& c) {
  for (int i = 0; i < 2; ++i) c.set_output(i, PartialShape::UnknownOfRank(1));
  return absl::OkStatus();
}

#define MR_READER_READ(name, handle)   \
  MILLRACE_OP(name)                    \
      .Input("reader_handle: " handle) \
      .Input("queue_handle: " handle)  \
      .Output("key: string")           \
      .Output("value: string")         \
      .Shape(ScalarShape)              \
      .NotDifferentiable()             \
      .Summary("Reads the next record; the reader dequeues file names as needed.")
MR_READER_READ(ReaderRead, "Ref(string)");
MR_READER_READ(ReaderReadV2, "resource").Stateful();

#define MR_READER_READ_UP_TO(name, handle) \
  MILLRACE_OP(name)                        \
      .Input("reader_handle: " handle)     \
      .Input("queue_handle: " handle)      \
      .Input("num_records: int64")         \
      .Output("keys: string")              \
      .Output("values: string")            \
      .Shape(ReadUpToShape)                \
      .NotDifferentiable()                 \
      .Summary("Reads up to num_records records of the current file.")
MR_READER_READ_UP_TO(ReaderReadUpTo, "Ref(string)");
MR_READER_READ_UP_TO(ReaderReadUpToV2, "resource").Stateful();

#define MR_READER_COUNT(name, handle, output, text) \
  MILLRACE_OP(name).Input("reader_handle: " handle).Output(output).Shape(ScalarShape).NotDifferentiable().Summary(text)
#define MR_RECORDS_PRODUCED(name, handle) \
  MR_READER_COUNT(name, handle, "records_produced: int64", "How many records a reader has given.")
MR_RECORDS_PRODUCED(ReaderNumRecordsProduced, "Ref(string)");
MR_RECORDS_PRODUCED(ReaderNumRecordsProducedV2, "resource").Stateful();
#define MR_UNITS_COMPLETED(name, handle) \
  MR_READER_COUNT(name, handle, "units_completed: int64", "How many files a reader has read to the end.")
MR_UNITS_COMPLETED(ReaderNumWorkUnitsCompleted, "Ref(string)");
MR_UNITS_COMPLETED(ReaderNumWorkUnitsCompletedV2, "resource").Stateful();

#define MR_SERIALIZE_STATE(name, handle) \
  MR_READER_COUNT(name, handle, "state: string", "The state of a reader, for ReaderRestoreState.")
MR_SERIALIZE_STATE(ReaderSerializeState, "Ref(string)");
MR_SERIALIZE_STATE(ReaderSerializeStateV2, "resource").Stateful();

#define MR_RESTORE_STATE(name, handle) \
  MILLRACE_OP(name)                    \
      .Input("reader_handle: " handle) \
      .Input("state: string")          \
      .Shape(NoOutputs)                \
      .NotDifferentiable()             \
      .Summary("Restores a reader to a state from ReaderSerializeState.")
MR_RESTORE_STATE(ReaderRestoreState, "Ref(string)");
MR_RESTORE_STATE(ReaderRestoreStateV2, "resource").Stateful();

#define MR_RESET(name, handle)         \
  MILLRACE_OP(name)                    \
      .Input("reader_handle: " handle) \
      .Shape(NoOutputs)                \
      .NotDifferentiable()             \
      .Summary("Resets a reader to its initial state.")
MR_RESET(ReaderReset, "Ref(string)");
MR_RESET(ReaderResetV2, "resource").Stateful();

#define MR_READER_KERNELS(name, ...)        \
  MILLRACE_KERNEL(name, kCpu, __VA_ARGS__); \
  MILLRACE_KERNEL(name##V2, kCpu, __VA_ARGS__)
MR_READER_KERNELS(ReaderRead, ReaderReadKernel<false>);
MR_READER_KERNELS(ReaderReadUpTo, ReaderReadKernel<true>);
MR_READER_KERNELS(ReaderNumRecordsProduced, ReaderCountKernel<&Reader::records_produced>);
MR_READER_KERNELS(ReaderNumWorkUnitsCompleted, ReaderCountKernel<&Reader::units_completed>);
MR_READER_KERNELS(ReaderSerializeState, ReaderSerializeStateKernel);
MR_READER_KERNELS(ReaderRestoreState, ReaderRestoreStateKernel);
MR_READER_KERNELS(ReaderReset, ReaderResetKernel);

}  // namespace
}  // namespace millrace
