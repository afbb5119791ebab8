#include "millrace/strategy/distribute_dataset.h"

#include <cstring>
#include <utility>

namespace millrace {
namespace {

Status CheckOptions(int num_replicas, const DistributeOptions& options) {
  if (options.batch_size < 1 || options.batch_size % num_replicas != 0) {
    return InvalidArgument("a global batch of ", options.batch_size, " examples cannot be divided equally into ",
                           num_replicas, " replicas");
  }
  if (options.first_batch < 0) return InvalidArgument("the first batch is ", options.first_batch);
  return absl::OkStatus();
}

// Stacks row `first`, `first + step`, ... of `examples`, component by component.
Status AppendStacked(const std::vector<std::vector<Tensor>>& examples, size_t first, size_t step,
                     std::vector<Tensor>* out) {
  const size_t rows = examples.size() / step;
  for (size_t c = 0; c < examples[0].size(); ++c) {
    const Tensor& like = examples[first][c];
    Shape shape = like.shape();
    shape.InsertDim(0, static_cast<int64_t>(rows));
    MR_ASSIGN_OR_RETURN(Tensor stacked, Tensor::Make(like.dtype(), shape));
    for (size_t row = 0; row < rows; ++row) {
      const Tensor& example = examples[first + row * step][c];
      if (example.shape() != like.shape() || example.dtype() != like.dtype()) {
        return InvalidArgument("component ", c, " of an example is ", DTypeName(example.dtype()),
                               example.shape().ToString(), ", and of another one ", DTypeName(like.dtype()),
                               like.shape().ToString());
      }
      Tensor to = stacked.Row(static_cast<int64_t>(row));
      if (like.dtype() == DType::kString) {
        for (int64_t i = 0; i < example.num_elements(); ++i) {
          to.data<std::string>()[i] = example.data<std::string>()[i];
        }
      } else if (example.TotalBytes() > 0) {
        std::memcpy(to.raw_data(), example.raw_data(), example.TotalBytes());
      }
    }
    out->push_back(std::move(stacked));
  }
  return absl::OkStatus();
}

class TogetherIterator : public DatasetIterator {
 public:
  TogetherIterator(std::unique_ptr<DatasetIterator> own, WorkerGroup* workers)
      : own_(std::move(own)), workers_(workers) {}

  StatusOr<bool> Next(std::vector<Tensor>* element) override {
    if (ended_) return false;
    StatusOr<bool> more = own_->Next(element);
    if (!more.ok()) return more;
    Tensor all = Tensor::Scalar<int32_t>(*more ? 1 : 0);
    MR_RETURN_IF_ERROR(
        WithPrefix("whether all workers have a next batch: ", workers_->AllReduce(&all, collective::Reduction::kMin)));
    ended_ = all.scalar<int32_t>() == 0;
    return !ended_;
  }
  bool Ready() const override { return false; }

 private:
  const std::unique_ptr<DatasetIterator> own_;
  WorkerGroup* const workers_;
  bool ended_ = false;
};

}  // namespace

StatusOr<Dataset> ExamplesOfReplicas(const Dataset& examples, int num_replicas, collective::ShardRange local,
                                     const DistributeOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(num_replicas, options));
  Dataset ordered = options.shuffle_buffer < 0
                        ? examples
                        : examples.Shuffle({.buffer_size = options.shuffle_buffer, .seed = options.seed});
  ordered = ordered.Repeat(options.repeat).Skip(options.first_batch * options.batch_size);
  const int64_t cardinality = ordered.Cardinality();
  const auto start = [=](uint64_t epoch) -> Generator {
    // The error of MakeIterator is returned by the first call.
    auto iterator = std::make_shared<StatusOr<std::unique_ptr<DatasetIterator>>>(ordered.MakeIterator(epoch));
    return [=](std::vector<Tensor>* element) -> StatusOr<bool> {
      MR_RETURN_IF_ERROR(iterator->status());
      std::vector<std::vector<Tensor>> batch(static_cast<size_t>(options.batch_size));
      for (std::vector<Tensor>& example : batch) {
        MR_ASSIGN_OR_RETURN(const bool more, (**iterator)->Next(&example));
        if (!more) return false;
      }
      element->clear();
      for (int r = local.first; r < local.last; ++r) {
        MR_RETURN_IF_ERROR(AppendStacked(batch, static_cast<size_t>(r), static_cast<size_t>(num_replicas), element));
      }
      return true;
    };
  };
  return Dataset::FromGenerator(start, cardinality < 0 ? cardinality : cardinality / options.batch_size);
}

StatusOr<Dataset> FilesOfReplicas(const Dataset& files, const FlatMapFn& open, int num_replicas,
                                  collective::ShardRange local, const DistributeOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(num_replicas, options));
  std::vector<Dataset> replicas;
  for (int r = local.first; r < local.last; ++r) {
    Dataset own = files.Shard(num_replicas, r).FlatMap(open);
    if (options.shuffle_buffer >= 0) {
      own = own.Shuffle(
          {.buffer_size = options.shuffle_buffer, .seed = options.seed, .seed2 = static_cast<uint64_t>(r) + 1});
    }
    replicas.push_back(own.Repeat(options.repeat)
                           .Batch(options.batch_size / num_replicas, /*drop_remainder=*/true)
                           .Skip(options.first_batch));
  }
  return Dataset::Zip(std::move(replicas));
}

std::unique_ptr<DatasetIterator> EndsTogether(std::unique_ptr<DatasetIterator> iterator, WorkerGroup* workers) {
  return std::make_unique<TogetherIterator>(std::move(iterator), workers);
}

}  // namespace millrace
