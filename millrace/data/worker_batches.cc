#include "millrace/data/worker_batches.h"

namespace millrace {

Dataset WorkerBatches(const Dataset& examples, const WorkerBatchesOptions& options) {
  const Dataset ordered = options.shuffle_buffer < 0 ? examples : examples.Shuffle({.buffer_size = options.shuffle_buffer, .seed = options.seed});
  // The epochs first: a number of examples that the workers do not divide leaves none of them behind.
  return ordered.Repeat(options.repeat).Shard(options.num_workers, options.worker_index).Batch(options.batch_size);
}

}  // namespace millrace
