// Input pipelines of queues, as TensorFlow 1 had them before datasets: files or indices go through one queue, examples
// through another, which gives batches. Threads fill them (QueueRunner); MonitoredSession and Supervisor start these.
//
//   queues::InputQueue files = queues::StringInputProducer(scope, {"a.csv", "b.csv"}, {.num_epochs = 2});
//   Output line = ops::ReaderReadV2(scope, reader, files.handle).value;
//   std::vector<Output> batch = queues::ShuffleBatch(scope, {features, label}, 32, 1000, 500);
//
// New programs use a Dataset (data/dataset.h), which is faster. The end of the input is OUT_OF_RANGE. A limit of epochs
// is counted by local variables, which LocalVariablesInitializer initializes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/api/input.h"

namespace millrace::queues {

// A queue of the graph.
struct InputQueue {
  Output handle = {};
  std::vector<DType> types = {};
  std::vector<PartialShape> shapes = {};  // of an element's components

  std::vector<Output> Dequeue(const Scope& scope) const;
  Output Size(const Scope& scope) const;
};

struct ProducerOptions {
  // How often each element is produced; for ever if nullopt.
  std::optional<int64_t> num_epochs = std::nullopt;
  // Anew in each epoch.
  bool shuffle = true;
  std::optional<int64_t> seed = std::nullopt;
  int64_t capacity = 32;
  // Queues of this name in several sessions of a task are one.
  std::string shared_name = {};
};

// The scopes of all these fail with INVALID_ARGUMENT for sizes that are not positive, shapes that are not known where
// they must be, and lists that are empty or do not match.

// The rows of a tensor, one by one.
InputQueue InputProducer(const Scope& scope, const Input& rows, const ProducerOptions& options = {});
// Strings, usually names of files: a vector that is not empty.
InputQueue StringInputProducer(const Scope& scope, const Input& strings, const ProducerOptions& options = {});
// The numbers from 0 to limit - 1, int32.
InputQueue RangeInputProducer(const Scope& scope, const Input& limit, const ProducerOptions& options = {});
// One row of each tensor, which have the same number of rows.
std::vector<Output> SliceInputProducer(const Scope& scope, const std::vector<Output>& tensors,
                                       const ProducerOptions& options = {});
// The same tensor, OUT_OF_RANGE after it was read `num_epochs` times.
Output LimitEpochs(const Scope& scope, const Input& tensor, int64_t num_epochs);

struct BatchOptions {
  int num_threads = 1;
  int64_t capacity = 32;
  // The tensors are batches of examples, whose first dimension is their number.
  bool enqueue_many = false;
  // Examples may differ in size; batches are filled up with zeros.
  bool dynamic_pad = false;
  bool allow_smaller_final_batch = false;
  // A bool; of a batch of examples, one for each. Only those that are true are enqueued.
  Input keep_input = Input();
  std::string shared_name = {};
};
// Batches of examples in the order in which they come.
std::vector<Output> Batch(const Scope& scope, const std::vector<Output>& tensors, int64_t batch_size,
                          const BatchOptions& options = {});
// The same of several pipelines, each with a thread of its own.
std::vector<Output> BatchJoin(const Scope& scope, const std::vector<std::vector<Output>>& tensors, int64_t batch_size,
                              const BatchOptions& options = {});

struct ShuffleBatchOptions {
  int num_threads = 1;
  std::optional<int64_t> seed = std::nullopt;
  bool enqueue_many = false;
  bool allow_smaller_final_batch = false;
  Input keep_input = Input();
  std::string shared_name = {};
};
// Batches of examples taken at random out of a queue, in which at least `min_after_dequeue` stay.
std::vector<Output> ShuffleBatch(const Scope& scope, const std::vector<Output>& tensors, int64_t batch_size,
                                 int64_t capacity, int64_t min_after_dequeue, const ShuffleBatchOptions& options = {});
std::vector<Output> ShuffleBatchJoin(const Scope& scope, const std::vector<std::vector<Output>>& tensors,
                                     int64_t batch_size, int64_t capacity, int64_t min_after_dequeue,
                                     const ShuffleBatchOptions& options = {});

}  // namespace millrace::queues
