// Batches of CIFAR-10, ready for training: augmented and standardised.
#pragma once

#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/data/cifar.h"
#include "millrace/data/dataset.h"

namespace millrace {

struct CifarTrainingOptions {
  // Per worker: a global batch has num_workers times as many examples.
  int64_t batch_size = 128;
  int64_t num_workers = 1;
  int64_t worker_index = 0;
  // The batches of this many workers, from worker_index on: an element then has the images and labels of each of them,
  // one after another. For the replicas of a strategy.
  int64_t parts = 1;
  // All workers must use the same seed.
  uint64_t seed = 1;
  // An image is cropped at a random place from one with this many black pixels more on each side, at most 32.
  int64_t padding = 4;
  // Whether half of the images are mirrored.
  bool flip = true;
  // The number of global batches that were used before, by a training that is resumed: the ones after them follow.
  int64_t first_batch = 0;
  // The number of threads that augment.
  int64_t threads = 1;
};

// An endless dataset of {float images [batch_size,32,32,3], int32 labels [batch_size]}, `parts` times. Each image is
// standardised: its mean is 0 and its standard deviation 1. An epoch has each example at most once, in an order of its
// own; examples that do not fill a global batch are left out. The order, crops and flips depend only on (seed, epoch,
// example), not on threads, workers or where a training was resumed. INVALID_ARGUMENT for options that make no sense,
// or if there are fewer examples than a global batch has.
StatusOr<Dataset> CifarTrainingBatches(const CifarImages& examples, const CifarTrainingOptions& options = {});

// All examples once, standardised, in their order; the last batch may be smaller.
StatusOr<Dataset> CifarTestBatches(const CifarImages& examples, int64_t batch_size, int64_t threads = 1);

}  // namespace millrace
