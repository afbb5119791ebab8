// Input pipelines: sources of examples and their transformations.
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
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace data_internal {
class Source;
}

// One pass over a dataset. Not thread-safe.
class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  // Stores the components of the next element. Returns false at the end, and on every later call. The tensors may share
  // memory with others and must not be written to.
  virtual StatusOr<bool> Next(std::vector<Tensor>* element) = 0;
  // True if Next would not wait for another thread.
  virtual bool Ready() const = 0;
};

// Produces the next element; called until it returns false.
using Generator = std::function<StatusOr<bool>(std::vector<Tensor>* element)>;

struct ShuffleOptions {
  // The number of elements from which the next one is drawn; 0 means all.
  int64_t buffer_size = 0;
  // The same seeds give the same order, which is TensorFlow's for these seeds.
  uint64_t seed = 0;
  uint64_t seed2 = 0;
  // Use a different order in each epoch of a Repeat.
  bool reshuffle_each_iteration = true;
};

struct PaddedBatchOptions {
  int64_t size = 1;
  // The shape to pad each component to; an unknown dimension is padded to the largest in the batch.
  std::vector<PartialShape> padded_shapes = {};
  // A scalar to pad each component with.
  std::vector<Tensor> padding_values = {};
  bool drop_remainder = false;
};

struct InterleaveOptions {
  // The number of inner datasets that are open at once.
  int64_t cycle_length = 1;
  // The number of consecutive elements taken from each.
  int64_t block_length = 1;
};

struct WindowOptions {
  int64_t size = 1;
  // The distance from the beginning of a window to that of the next; 0 means `size`, so that they do not overlap.
  int64_t shift = 0;
  // The distance between the elements of a window.
  int64_t stride = 1;
  // Omits the last windows if they are smaller.
  bool drop_remainder = false;
};

struct FileOptions {
  // "GZIP", "ZLIB" or none.
  std::string compression = {};
  FileSystem* files = FileSystem::Posix();
};

struct FixedLengthLayout {
  int64_t record_bytes = 0;
  // What a file has before its first record and after its last.
  int64_t header_bytes = 0;
  int64_t footer_bytes = 0;
};

struct ListFilesOptions {
  // In an order that depends on `seed`, and that each epoch of a Repeat has for itself; otherwise sorted.
  bool shuffle = false;
  uint64_t seed = 1;
  FileSystem* files = FileSystem::Posix();
};

// The number of elements of a dataset, where it is known without a pass over it.
inline constexpr int64_t kInfiniteCardinality = -1;
inline constexpr int64_t kUnknownCardinality = -2;

class Dataset;
// User functions of an element: modify it, test it, or map it to a dataset.
using ElementFn = std::function<Status(std::vector<Tensor>* element)>;
using FilterFn = std::function<StatusOr<bool>(const std::vector<Tensor>& element)>;
using FlatMapFn = std::function<StatusOr<Dataset>(const std::vector<Tensor>& element)>;
using ReduceFn = std::function<Status(std::vector<Tensor>* state, const std::vector<Tensor>& element)>;

// An immutable, cheaply copied description of a pipeline; each method returns an extended one. Nothing is read before
// MakeIterator, which also reports invalid arguments of earlier calls. Thread-safe.
class Dataset {
 public:
  // Element i is row i of each tensor (TensorFlow's from_tensor_slices). INVALID_ARGUMENT if there are no tensors or
  // their first dimensions differ.
  static StatusOr<Dataset> FromTensors(std::vector<Tensor> tensors);
  // `start` is called for each pass, with the epoch number. `cardinality`, if it is known, is that of each pass.
  static Dataset FromGenerator(std::function<Generator(uint64_t epoch)> start,
                               int64_t cardinality = kUnknownCardinality);
  // A single element that consists of all the tensors.
  static Dataset FromElement(std::vector<Tensor> tensors);
  // start, start + step, ... below stop (above it for a negative step), as scalars of `dtype` (int64 by default).
  static Dataset Range(int64_t start, int64_t stop, int64_t step = 1, DType dtype = DType::kInt64);
  // What files contain, file by file, as scalar strings: lines without their ends, records of one length, records of
  // TFRecord files (each file from the offset given for it, if there are any). Files are opened when the pass gets to
  // them; errors name the file.
  //
  //   MR_ASSIGN_OR_RETURN(Dataset files, Dataset::ListFiles({"data/train-*"}, {.shuffle = true}));
  //   Dataset examples = files.Interleave(
  //       [](const std::vector<Tensor>& file) -> StatusOr<Dataset> {
  //         return Dataset::FromTFRecords({file[0].scalar<std::string>()});
  //       },
  //       {.cycle_length = 4});
  static Dataset FromTextLines(std::vector<std::string> paths, FileOptions options = {});
  static Dataset FromFixedLengthRecords(std::vector<std::string> paths, FixedLengthLayout layout,
                                        FileOptions options = {});
  static Dataset FromTFRecords(std::vector<std::string> paths, FileOptions options = {},
                               std::vector<int64_t> offsets = {});
  // The paths that match the patterns now (`*`, `?` and `[a-z]`), as scalar strings. NOT_FOUND if there are none.
  static StatusOr<Dataset> ListFiles(const std::vector<std::string>& patterns, ListFilesOptions options = {});
  // Element i has the components of element i of every dataset; ends with the shortest.
  static Dataset Zip(std::vector<Dataset> datasets);

  Dataset Shuffle(ShuffleOptions options = {}) const;
  // Stacks n elements into one along a new first dimension. The last batch may be smaller; it is omitted if
  // `drop_remainder`.
  Dataset Batch(int64_t n, bool drop_remainder = false) const;
  // The rows of each element's tensors as elements. INVALID_ARGUMENT if an element's components have different numbers
  // of rows, or one is a scalar.
  Dataset Unbatch() const;
  // Stacks elements that lie beside each other into one; windows may overlap. TensorFlow's window, with each window
  // batched.
  Dataset Window(WindowOptions options) const;
  // Repeats the pipeline so far `count` times; indefinitely if negative.
  Dataset Repeat(int64_t count = -1) const;
  // Elements i, i + n, i + 2n and so on: every element is in exactly one of the n shards. Use it before Shuffle, or
  // after a Shuffle with the same seed on all workers.
  Dataset Shard(int64_t n, int64_t i) const;
  // Applies `fn` to each element. Each iterator calls it from one thread at a time. Set `waits` if a call may wait for
  // another thread.
  Dataset Map(ElementFn fn, bool waits = false) const;
  // The same on up to `calls` threads of its own; elements keep their order.
  Dataset ParallelMap(ElementFn fn, int64_t calls) const;
  // Keeps only the elements for which `keep` returns true.
  Dataset Filter(FilterFn keep, bool waits = false) const;
  // Maps each element to a dataset by `fn` and interleaves the elements of these datasets.
  Dataset Interleave(FlatMapFn fn, InterleaveOptions options = {}) const;
  Dataset FlatMap(FlatMapFn fn) const { return Interleave(std::move(fn)); }
  // These elements followed by those of `next`.
  Dataset Concatenate(const Dataset& next) const;
  // Like Batch, for elements of different shapes. An element that is larger than padded_shapes is DATA_LOSS, as in
  // TensorFlow; one of another rank or type is INVALID_ARGUMENT.
  Dataset PaddedBatch(PaddedBatchOptions options) const;
  // Caches the elements in memory once a pass has reached the end; later passes read the cache.
  Dataset Cache() const;
  Dataset Take(int64_t n) const;
  Dataset Skip(int64_t n) const;
  // Prefetches up to n elements on a thread of its own.
  Dataset Prefetch(int64_t n) const;

  // Calls `fn` with the state and each element in turn, and returns the last state. Does not return for an endless
  // dataset.
  StatusOr<std::vector<Tensor>> Reduce(std::vector<Tensor> initial, const ReduceFn& fn) const;

  int64_t Cardinality() const;

  // Starts a pass from the beginning; `epoch` selects the shuffled order.
  StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(uint64_t epoch = 0) const;

 private:
  explicit Dataset(std::shared_ptr<const data_internal::Source> source) : source_(std::move(source)) {}
  explicit Dataset(Status error) : status_(std::move(error)) {}
  // Extends the pipeline by `make`, unless there was an error before or `check` is one.
  Dataset Then(Status check, std::function<std::shared_ptr<const data_internal::Source>()> make) const;

  Status status_;
  std::shared_ptr<const data_internal::Source> source_;
};

}  // namespace millrace
