#include "millrace/data/dataset.h"

#include <limits>
#include <utility>

#include "millrace/data/stage.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using data_internal::Element;
using data_internal::SourcePtr;
using data_internal::Stage;

class PipelineIterator : public DatasetIterator {
 public:
  PipelineIterator(SourcePtr source, uint64_t epoch) : source_(std::move(source)), stage_(source_->Start(epoch)) {}

  StatusOr<bool> Next(std::vector<Tensor>* element) override {
    if (stage_ == nullptr) return false;
    Element next;
    MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(&next));
    if (!more) {
      stage_ = nullptr;
      return false;
    }
    data_internal::Materialize(source_->table(), &next);
    *element = std::move(next.tensors);
    return true;
  }

  bool Ready() const override { return stage_ == nullptr || (!source_->waits() && stage_->Ready()); }

 private:
  SourcePtr source_;
  std::unique_ptr<Stage> stage_;
};

Status AtLeast(const char* what, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument(what, " is ", value, ", but must be at least ", least);
}

Status NotEmpty(const char* what, bool given) {
  return given ? absl::OkStatus() : InvalidArgument("the function of ", what, " is empty");
}

// Creates scalars of a numeric type; null for other types.
std::function<Tensor(int64_t)> ScalarMaker(DType dtype) {
  std::function<Tensor(int64_t)> maker;
  DispatchType(RealTypes(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    maker = [](int64_t v) {
      if constexpr (std::is_constructible_v<T, int64_t>) {
        return Tensor::Scalar(static_cast<T>(v));
      } else {
        return Tensor::Scalar(T(static_cast<float>(v)));
      }
    };
  });
  return maker;
}

}  // namespace

StatusOr<Dataset> Dataset::FromTensors(std::vector<Tensor> tensors) {
  MR_ASSIGN_OR_RETURN(SourcePtr source, data_internal::NewRowSource(std::move(tensors)));
  return Dataset(std::move(source));
}

Dataset Dataset::FromGenerator(std::function<Generator(uint64_t epoch)> start, int64_t cardinality) {
  if (start == nullptr) return Dataset(InvalidArgument("a dataset's generator is empty"));
  return Dataset(data_internal::NewGeneratorSource(std::move(start), cardinality));
}

Dataset Dataset::Then(Status check, std::function<SourcePtr()> make) const {
  if (!status_.ok()) return *this;
  if (!check.ok()) return Dataset(std::move(check));
  return Dataset(make());
}

Dataset Dataset::Shuffle(ShuffleOptions options) const {
  Status check = AtLeast("the buffer size of Shuffle", options.buffer_size, 0);
  if (check.ok() && options.buffer_size == 0 && source_ != nullptr && source_->endless()) {
    check = InvalidArgument(
        "Shuffle of all elements of an endless dataset: give it a buffer size, or "
        "put Repeat after it");
  }
  return Then(std::move(check), [&] { return data_internal::NewShuffle(source_, options); });
}

Dataset Dataset::Batch(int64_t n, bool drop_remainder) const {
  return Then(AtLeast("the size of Batch", n, 1), [&] { return data_internal::NewBatch(source_, n, drop_remainder); });
}

Dataset Dataset::Unbatch() const {
  return FlatMap([](const std::vector<Tensor>& batch) -> StatusOr<Dataset> {
    for (const Tensor& component : batch) {
      if (component.rank() == 0) return InvalidArgument("Cannot unbatch an element with scalar components.");
      if (component.dim(0) != batch[0].dim(0)) {
        return InvalidArgument("Input element must have the same batch size in each component. Component 0 had size ",
                               batch[0].dim(0), " but component ", &component - batch.data(), " had size, ",
                               component.dim(0), ".");
      }
    }
    return FromTensors(batch);
  });
}

Dataset Dataset::Window(WindowOptions options) const {
  Status check = AtLeast("the size of Window", options.size, 1);
  check.Update(AtLeast("the shift of Window", options.shift, 0));
  check.Update(AtLeast("the stride of Window", options.stride, 1));
  if (int64_t reach = 0; check.ok() && __builtin_mul_overflow(options.size, options.stride, &reach)) {
    check =
        InvalidArgument("a Window of ", options.size, " elements with a stride of ", options.stride, " is too large");
  }
  if (options.shift == 0) options.shift = options.size;
  return Then(std::move(check), [&] { return data_internal::NewWindow(source_, options); });
}

Dataset Dataset::Repeat(int64_t count) const {
  return Then(absl::OkStatus(), [&] { return data_internal::NewRepeat(source_, count); });
}

Dataset Dataset::Shard(int64_t n, int64_t i) const {
  Status check = AtLeast("the number of shards", n, 1);
  if (check.ok() && (i < 0 || i >= n)) {
    check = InvalidArgument("shard ", i, " of ", n, " does not exist");
  }
  return Then(std::move(check), [&] { return data_internal::NewShard(source_, n, i); });
}

Dataset Dataset::Map(ElementFn fn, bool waits) const {
  return Then(NotEmpty("Map", fn != nullptr), [&] { return data_internal::NewMap(source_, std::move(fn), waits); });
}

Dataset Dataset::ParallelMap(ElementFn fn, int64_t calls) const {
  Status check = NotEmpty("ParallelMap", fn != nullptr);
  check.Update(AtLeast("the number of calls of ParallelMap", calls, 1));
  return Then(std::move(check), [&] { return data_internal::NewParallelMap(source_, std::move(fn), calls); });
}

Dataset Dataset::Filter(FilterFn keep, bool waits) const {
  return Then(NotEmpty("Filter", keep != nullptr),
              [&] { return data_internal::NewFilter(source_, std::move(keep), waits); });
}

Dataset Dataset::Interleave(FlatMapFn fn, InterleaveOptions options) const {
  Status check = NotEmpty("Interleave", fn != nullptr);
  check.Update(AtLeast("the cycle length of Interleave", options.cycle_length, 1));
  check.Update(AtLeast("the block length of Interleave", options.block_length, 1));
  return Then(std::move(check), [&] { return data_internal::NewInterleave(source_, std::move(fn), options); });
}

Dataset Dataset::Concatenate(const Dataset& next) const {
  return Then(next.status_, [&] { return data_internal::NewConcatenate(source_, next.source_); });
}

Dataset Dataset::PaddedBatch(PaddedBatchOptions options) const {
  Status check = AtLeast("the size of PaddedBatch", options.size, 1);
  if (check.ok() && options.padded_shapes.size() != options.padding_values.size()) {
    check = InvalidArgument("PaddedBatch has ", options.padded_shapes.size(), " shapes and ",
                            options.padding_values.size(), " padding values");
  }
  return Then(std::move(check), [&] { return data_internal::NewPaddedBatch(source_, std::move(options)); });
}

Dataset Dataset::Cache() const {
  return Then(absl::OkStatus(), [&] { return data_internal::NewCache(source_); });
}

Dataset Dataset::Zip(std::vector<Dataset> datasets) {
  std::vector<SourcePtr> sources;
  for (const Dataset& d : datasets) {
    if (!d.status_.ok()) return d;
    sources.push_back(d.source_);
  }
  if (sources.empty()) return Dataset(InvalidArgument("Zip needs at least one dataset"));
  return Dataset(data_internal::NewZip(std::move(sources)));
}

Dataset Dataset::FromElement(std::vector<Tensor> tensors) {
  return FromGenerator(
      [tensors = std::move(tensors)](uint64_t) -> Generator {
        return [tensors, done = false](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
          if (done) return false;
          done = true;
          *element = tensors;
          return true;
        };
      },
      1);
}

Dataset Dataset::Range(int64_t start, int64_t stop, int64_t step, DType dtype) {
  if (step == 0) return Dataset(InvalidArgument("the step of Range is 0"));
  const auto scalar = ScalarMaker(dtype);
  if (scalar == nullptr) return Dataset(InvalidArgument("Range does not support type ", DTypeName(dtype)));
  // The difference of two int64 fits into an uint64.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  return FromGenerator(
      [=](uint64_t) -> Generator {
        return [=, next = start, ended = false](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
          if (ended || (step > 0 ? next >= stop : next <= stop)) return false;
          element->push_back(scalar(next));
          ended = __builtin_add_overflow(next, step, &next);
          return true;
        };
      },
      count <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? static_cast<int64_t>(count)
                                                                          : kUnknownCardinality);
}

Dataset Dataset::Take(int64_t n) const {
  return Then(AtLeast("the count of Take", n, 0), [&] { return data_internal::NewTake(source_, n); });
}

Dataset Dataset::Skip(int64_t n) const {
  return Then(AtLeast("the count of Skip", n, 0), [&] { return data_internal::NewSkip(source_, n); });
}

Dataset Dataset::Prefetch(int64_t n) const {
  return Then(AtLeast("the count of Prefetch", n, 1), [&] { return data_internal::NewPrefetch(source_, n); });
}

StatusOr<std::vector<Tensor>> Dataset::Reduce(std::vector<Tensor> initial, const ReduceFn& fn) const {
  MR_RETURN_IF_ERROR(NotEmpty("Reduce", fn != nullptr));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> pass, MakeIterator());
  std::vector<Tensor> element;
  for (;;) {
    MR_ASSIGN_OR_RETURN(const bool more, pass->Next(&element));
    if (!more) return initial;
    MR_RETURN_IF_ERROR(fn(&initial, element));
  }
}

int64_t Dataset::Cardinality() const { return source_ != nullptr ? source_->cardinality() : kUnknownCardinality; }

StatusOr<std::unique_ptr<DatasetIterator>> Dataset::MakeIterator(uint64_t epoch) const {
  MR_RETURN_IF_ERROR(status_);
  return std::make_unique<PipelineIterator>(source_, epoch);
}

}  // namespace millrace
