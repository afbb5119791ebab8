#include "millrace/data/dataset.h"

#include <utility>

#include "millrace/data/stage.h"

namespace millrace {
namespace {

using data_internal::Element;
using data_internal::SourcePtr;
using data_internal::Stage;

class PipelineIterator : public DatasetIterator {
 public:
  PipelineIterator(SourcePtr source, uint64_t epoch)
      : source_(std::move(source)), stage_(source_->Start(epoch)) {}

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

 private:
  SourcePtr source_;
  std::unique_ptr<Stage> stage_;
};

Status AtLeast(const char* what, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument(what, " is ", value, ", but must be at least ", least);
}

}  // namespace

StatusOr<Dataset> Dataset::FromTensors(std::vector<Tensor> tensors) {
  MR_ASSIGN_OR_RETURN(SourcePtr source, data_internal::NewRowSource(std::move(tensors)));
  return Dataset(std::move(source));
}

Dataset Dataset::FromGenerator(std::function<Generator(uint64_t epoch)> start) {
  if (start == nullptr) return Dataset(InvalidArgument("a dataset's generator is empty"));
  return Dataset(data_internal::NewGeneratorSource(std::move(start)));
}

Dataset Dataset::Then(Status check, std::function<SourcePtr()> make) const {
  if (!status_.ok()) return *this;
  if (!check.ok()) return Dataset(std::move(check));
  return Dataset(make());
}

Dataset Dataset::Shuffle(ShuffleOptions options) const {
  Status check = AtLeast("the buffer size of Shuffle", options.buffer_size, 0);
  if (check.ok() && options.buffer_size == 0 && source_ != nullptr && source_->endless()) {
    check = InvalidArgument("Shuffle of all elements of an endless dataset: give it a buffer size, or "
                            "put Repeat after it");
  }
  return Then(std::move(check), [&] { return data_internal::NewShuffle(source_, options); });
}

Dataset Dataset::Batch(int64_t n, bool drop_remainder) const {
  return Then(AtLeast("the size of Batch", n, 1),
              [&] { return data_internal::NewBatch(source_, n, drop_remainder); });
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

Dataset Dataset::Map(std::function<Status(std::vector<Tensor>* element)> fn) const {
  return Then(fn == nullptr ? InvalidArgument("the function of Map is empty") : absl::OkStatus(),
              [&] { return data_internal::NewMap(source_, std::move(fn)); });
}

Dataset Dataset::Take(int64_t n) const {
  return Then(AtLeast("the count of Take", n, 0), [&] { return data_internal::NewTake(source_, n); });
}

Dataset Dataset::Skip(int64_t n) const {
  return Then(AtLeast("the count of Skip", n, 0), [&] { return data_internal::NewSkip(source_, n); });
}

Dataset Dataset::Prefetch(int64_t n) const {
  return Then(AtLeast("the count of Prefetch", n, 1),
              [&] { return data_internal::NewPrefetch(source_, n); });
}

StatusOr<std::unique_ptr<DatasetIterator>> Dataset::MakeIterator(uint64_t epoch) const {
  MR_RETURN_IF_ERROR(status_);
  return std::make_unique<PipelineIterator>(source_, epoch);
}

}  // namespace millrace
