#include "millrace/strategy/distribute_dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

Status CheckOptions(int num_replicas, const DistributeOptions& options) {
  if (options.batch_size < 1 || (options.drop_remainder && options.batch_size % num_replicas != 0)) {
    return InvalidArgument("a global batch of ", options.batch_size, " examples cannot be divided equally into ",
                           num_replicas, " replicas");
  }
  if (options.first_batch < 0) return InvalidArgument("the first batch is ", options.first_batch);
  return absl::OkStatus();
}

// The number of examples of replica `r` in a global batch of `examples`.
size_t ExamplesOf(size_t r, size_t replicas, size_t examples) {
  return examples > r ? (examples - r + replicas - 1) / replicas : 0;
}

// Stacks `rows` rows of `examples`, from `first` on in steps of `step`, component by component.
Status AppendStacked(const std::vector<std::vector<Tensor>>& examples, size_t first, size_t step, size_t rows,
                     std::vector<Tensor>* out) {
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
  TogetherIterator(std::unique_ptr<DatasetIterator> own, WorkerGroup* workers, int partial)
      : own_(std::move(own)), workers_(workers), partial_(static_cast<size_t>(partial)) {}

  StatusOr<bool> Next(std::vector<Tensor>* element) override {
    if (ended_) return false;
    bool has = false;
    if (!own_ended_) {
      MR_ASSIGN_OR_RETURN(has, own_->Next(element));
      own_ended_ = partial_ > 0 && !has;
    }
    Tensor all = Tensor::Scalar<int32_t>(has ? 1 : 0);
    MR_RETURN_IF_ERROR(WithPrefix(
        "whether all workers have a next batch: ",
        workers_->AllReduce(&all, partial_ > 0 ? collective::Reduction::kMax : collective::Reduction::kMin)));
    ended_ = all.scalar<int32_t>() == 0;
    if (ended_ || partial_ == 0) return !ended_;
    if (has) {
      last_ = *element;
      return true;
    }
    if (last_.empty()) {
      return InvalidArgument("worker ", workers_->rank(), " has no examples at all, and others have");
    }
    *element = last_;
    const size_t parts = last_.size() / partial_;
    for (size_t r = 1; r <= partial_; ++r) (*element)[r * parts - 1] = Tensor::Scalar<int64_t>(0);
    return true;
  }
  bool Ready() const override { return false; }

 private:
  const std::unique_ptr<DatasetIterator> own_;
  WorkerGroup* const workers_;
  const size_t partial_;
  std::vector<Tensor> last_;
  bool own_ended_ = false;
  bool ended_ = false;
};

// The batches of a worker's replicas side by side, until those of all have ended. One that has come to its end gets an
// example that it, or another, had before.
Generator UntilLast(const std::vector<Dataset>& replicas, uint64_t epoch) {
  struct State {
    std::vector<std::unique_ptr<DatasetIterator>> iterators;
    Status status;
    std::vector<std::vector<Tensor>> last;
  };
  auto state = std::make_shared<State>();
  state->last.resize(replicas.size());
  for (const Dataset& replica : replicas) {
    StatusOr<std::unique_ptr<DatasetIterator>> made = replica.MakeIterator(epoch);
    if (made.ok()) {
      state->iterators.push_back(*std::move(made));
    } else if (state->status.ok()) {
      state->status = made.status();
    }
  }
  return [state](std::vector<Tensor>* element) -> StatusOr<bool> {
    MR_RETURN_IF_ERROR(state->status);
    std::vector<bool> has(state->last.size(), false);
    const std::vector<Tensor>* any = nullptr;
    bool more = false;
    for (size_t r = 0; r < has.size(); ++r) {
      std::vector<Tensor> next;
      if (state->iterators[r] != nullptr) {
        MR_ASSIGN_OR_RETURN(has[r], state->iterators[r]->Next(&next));
      }
      if (has[r]) {
        state->last[r] = std::move(next);
      } else {
        state->iterators[r] = nullptr;
      }
      more |= has[r];
      if (!state->last[r].empty()) any = &state->last[r];
    }
    if (!more) return false;
    element->clear();
    for (size_t r = 0; r < has.size(); ++r) {
      const std::vector<Tensor>& from = state->last[r].empty() ? *any : state->last[r];
      for (const Tensor& part : from) element->push_back(has[r] ? part : part.Slice(0, 1));
      element->push_back(Tensor::Scalar<int64_t>(has[r] ? from[0].dim(0) : 0));
    }
    return true;
  };
}

}  // namespace

StatusOr<Dataset> ExamplesOfReplicas(const Dataset& examples, int num_replicas, ShardRange local,
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
      for (size_t i = 0; i < batch.size(); ++i) {
        MR_ASSIGN_OR_RETURN(const bool more, (**iterator)->Next(&batch[i]));
        if (more) continue;
        if (options.drop_remainder || i == 0) return false;
        batch.resize(i);
      }
      element->clear();
      const auto replicas = static_cast<size_t>(num_replicas);
      for (auto r = static_cast<size_t>(local.first); r < static_cast<size_t>(local.last); ++r) {
        const size_t rows = ExamplesOf(r, replicas, batch.size());
        // The stand-in of a replica without examples is the first one.
        MR_RETURN_IF_ERROR(AppendStacked(batch, rows == 0 ? 0 : r, replicas, std::max<size_t>(rows, 1), element));
        if (!options.drop_remainder) element->push_back(Tensor::Scalar<int64_t>(static_cast<int64_t>(rows)));
      }
      return true;
    };
  };
  if (cardinality < 0) return Dataset::FromGenerator(start, cardinality);
  const int64_t more = options.drop_remainder ? 0 : options.batch_size - 1;
  return Dataset::FromGenerator(start, (cardinality + more) / options.batch_size);
}

StatusOr<Dataset> FilesOfReplicas(const Dataset& files, const FlatMapFn& open, int num_replicas, ShardRange local,
                                  const DistributeOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(num_replicas, options));
  std::vector<Dataset> replicas;
  for (int r = local.first; r < local.last; ++r) {
    Dataset own = files.Shard(num_replicas, r).FlatMap(open);
    if (options.shuffle_buffer >= 0) {
      own = own.Shuffle(
          {.buffer_size = options.shuffle_buffer, .seed = options.seed, .seed2 = static_cast<uint64_t>(r) + 1});
    }
    const size_t rows =
        ExamplesOf(static_cast<size_t>(r), static_cast<size_t>(num_replicas), static_cast<size_t>(options.batch_size));
    if (rows == 0) {
      return InvalidArgument("a global batch of ", options.batch_size, " examples has none for replica ", r, " of ",
                             num_replicas);
    }
    replicas.push_back(
        own.Repeat(options.repeat).Batch(static_cast<int64_t>(rows), options.drop_remainder).Skip(options.first_batch));
  }
  if (options.drop_remainder) return Dataset::Zip(std::move(replicas));
  return Dataset::FromGenerator([replicas](uint64_t epoch) { return UntilLast(replicas, epoch); },
                                options.repeat < 0 ? kInfiniteCardinality : kUnknownCardinality);
}

std::unique_ptr<DatasetIterator> EndsTogether(std::unique_ptr<DatasetIterator> iterator, WorkerGroup* workers,
                                              int partial) {
  return std::make_unique<TogetherIterator>(std::move(iterator), workers, partial);
}

}  // namespace millrace
