// The examples of a training, divided among its workers.
#pragma once

#include <cstdint>

#include "millrace/data/dataset.h"

namespace millrace {

struct WorkerBatchesOptions {
  int64_t num_workers = 1;
  int64_t worker_index = 0;
  // Of this worker: a global batch is num_workers times as many examples.
  int64_t batch_size = 1;
  // Each epoch has an order of its own, which follows from the seed: give all workers the same.
  uint64_t seed = 1;
  // See ShuffleOptions::buffer_size; 0 takes all examples. Negative: they are not shuffled.
  int64_t shuffle_buffer = 0;
  // Epochs; negative: for ever.
  int64_t repeat = -1;
};

// What one worker trains on. The workers' k-th batches together are the k-th global batch, and in each epoch every example comes once, at one of the workers. The global
// batches do not depend on the number of workers, as long as num_workers * batch_size stays: a synchronous training takes the same course on one worker as
// on many. Every worker walks through all examples, so those should be cheap until they are in a batch (Map after this).
Dataset WorkerBatches(const Dataset& examples, const WorkerBatchesOptions& options);

}  // namespace millrace
