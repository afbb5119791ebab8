#include "millrace/data/worker_batches.h"

namespace millrace {

Dataset WorkerBatches(const Dataset& examples, const WorkerBatchesOptions& options) {
  const Dataset ordered = options.shuffle_buffer < 0
                              ? examples
                              : examples.Shuffle({.buffer_size = options.shuffle_buffer, .seed = options.seed});
  // Repeat before Shard: otherwise workers would get different numbers of examples per epoch if their number does not
  // divide the number of examples.
  return ordered.Repeat(options.repeat).Shard(options.num_workers, options.worker_index).Batch(options.batch_size);
}

}  // namespace millrace
