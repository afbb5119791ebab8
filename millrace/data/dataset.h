// Input pipelines: where examples come from and what happens to them on the way to a step.
//
//   MR_ASSIGN_OR_RETURN(Dataset train, Dataset::FromTensors({images, labels}));
//   train = train.Shuffle({.seed = 1}).Batch(100).Repeat().Prefetch(2);
//   MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> it, train.MakeIterator());
//   std::vector<Tensor> batch;
//   while (true) {
//     MR_ASSIGN_OR_RETURN(bool more, it->Next(&batch));
//     if (!more) break;
//     ...
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace data_internal {
class Source;
}

// One walk through a dataset. One thread at a time.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  // The next element's components; false at the end, and again when asked again. The tensors may share
  // memory with others and are not to be written to.
  virtual StatusOr<bool> Next(std::vector<Tensor>* element) = 0;
  // True when Next would not wait for another thread.
  virtual bool Ready() const = 0;
};

// What a generator gives: called until it returns false.
using Generator = std::function<StatusOr<bool>(std::vector<Tensor>* element)>;

struct ShuffleOptions {
  // From how many elements the next one is drawn; 0 takes them all.
  int64_t buffer_size = 0;
  // The same seeds give the same order: the one that TensorFlow gives for them.
  uint64_t seed = 0;
  uint64_t seed2 = 0;
  // Another order in each epoch of a Repeat.
  bool reshuffle_each_iteration = true;
};

struct PaddedBatchOptions {
  int64_t size = 1;
  // For each component the shape to pad to; an unknown dimension takes the largest of the batch.
  std::vector<PartialShape> padded_shapes = {};
  // For each component a scalar to pad with.
  std::vector<Tensor> padding_values = {};
  bool drop_remainder = false;
};

struct InterleaveOptions {
  // How many inner datasets are open at once.
  int64_t cycle_length = 1;
  // How many elements come from one before the next has its turn.
  int64_t block_length = 1;
};

class Dataset;
// What a function of an element may be: it changes it, tests it, or makes a dataset of it.
using MapFn = std::function<Status(std::vector<Tensor>* element)>;
using FilterFn = std::function<StatusOr<bool>(const std::vector<Tensor>& element)>;
using FlatMapFn = std::function<StatusOr<Dataset>(const std::vector<Tensor>& element)>;

// A cheap value that describes a pipeline; each method gives a longer one. Nothing is read before
// MakeIterator. A bad argument is kept and reported there. Thread-safe.
class Dataset {
 public:
  // Element i has row i of each tensor. INVALID_ARGUMENT when there are none, or when they are not all
  // of one first dimension.
  static StatusOr<Dataset> FromTensors(std::vector<Tensor> tensors);
  // `start` is called for each walk, with the number of the epoch.
  static Dataset FromGenerator(std::function<Generator(uint64_t epoch)> start);
  // One element, all of the tensors.
  static Dataset FromElement(std::vector<Tensor> tensors);
  // start, start + step, ... below stop (above it for a negative step), as scalars of `dtype` (int64 by default).
  static Dataset Range(int64_t start, int64_t stop, int64_t step = 1, DType dtype = DType::kInt64);
  // Element i has the components of element i of each; ends with the shortest.
  static Dataset Zip(std::vector<Dataset> datasets);

  Dataset Shuffle(ShuffleOptions options = {}) const;
  // Puts n elements into one, with a new first dimension. The last may be smaller; it is left out when
  // `drop_remainder`.
  Dataset Batch(int64_t n, bool drop_remainder = false) const;
  // Walks `count` times through what comes before; for ever when negative.
  Dataset Repeat(int64_t count = -1) const;
  // Elements i, i + n, i + 2n, ...: every element is in exactly one of the n shards. Before Shuffle,
  // or after one with the same seed everywhere.
  Dataset Shard(int64_t n, int64_t i) const;
  // `fn` changes an element. Called from one thread for each iterator. `waits` says that a call may wait for
  // another thread.
  Dataset Map(MapFn fn, bool waits = false) const;
  // The same on up to `calls` threads of its own; the elements keep their order.
  Dataset ParallelMap(MapFn fn, int64_t calls) const;
  // Only the elements that `keep` says yes to.
  Dataset Filter(FilterFn keep, bool waits = false) const;
  // The elements of the datasets that `fn` makes of the elements, in turns.
  Dataset Interleave(FlatMapFn fn, InterleaveOptions options = {}) const;
  Dataset FlatMap(FlatMapFn fn) const { return Interleave(std::move(fn)); }
  // First these elements, then those of `next`.
  Dataset Concatenate(const Dataset& next) const;
  // Like Batch, for elements of different shapes. INVALID_ARGUMENT when one does not fit into padded_shapes.
  Dataset PaddedBatch(PaddedBatchOptions options) const;
  // Keeps in memory what the first whole walk of an iterator's family saw; later walks read that.
  Dataset Cache() const;
  Dataset Take(int64_t n) const;
  Dataset Skip(int64_t n) const;
  // Makes up to n elements ahead, on a thread of its own.
  Dataset Prefetch(int64_t n) const;

  // Walks from the beginning; `epoch` says which of the shuffled orders.
  StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(uint64_t epoch = 0) const;

 private:
  explicit Dataset(std::shared_ptr<const data_internal::Source> source) : source_(std::move(source)) {}
  explicit Dataset(Status error) : status_(std::move(error)) {}
  // `source`, or the error so far or in `check`.
  Dataset Then(Status check, std::function<std::shared_ptr<const data_internal::Source>()> make) const;

  Status status_;
  std::shared_ptr<const data_internal::Source> source_;
};

}  // namespace millrace
