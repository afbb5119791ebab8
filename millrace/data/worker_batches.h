// Training examples sharded among workers.
#pragma once

#include <cstdint>

#include "millrace/data/dataset.h"

namespace millrace {

struct WorkerBatchesOptions {
  int64_t num_workers = 1;
  int64_t worker_index = 0;
  // The batch size per worker: a global batch has num_workers times as many examples.
  int64_t batch_size = 1;
  // Determines the order of the examples, which differs in each epoch. All workers must use the same seed.
  uint64_t seed = 1;
  // See ShuffleOptions::buffer_size; 0 means all examples. Negative disables shuffling.
  int64_t shuffle_buffer = 0;
  // The number of epochs; negative means indefinitely.
  int64_t repeat = -1;
};

// The batches of one worker. The k-th batches of all workers together are the k-th global batch, and in each epoch
// every example goes to exactly one worker. The global batches depend only on num_workers * batch_size, so synchronous
// training gives the same result on one worker as on many. Every worker iterates over all examples, so apply expensive
// transformations after this (Map).
Dataset WorkerBatches(const Dataset& examples, const WorkerBatchesOptions& options);

}  // namespace millrace
