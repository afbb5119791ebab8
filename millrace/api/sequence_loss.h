// The loss of sequences of words.
#pragma once

#include "millrace/api/input.h"

namespace millrace::losses {

struct SequenceLossOptions {
  // [batch, time]: 0 excludes a padded word. By default all words count.
  Input weights = Input();
  bool average_across_timesteps = true;
  bool average_across_batch = true;
};
// The cross-entropy of targets [batch, time] (int32 or int64) and logits [batch, time, classes]: a scalar, divided by
// the sum of the weights; [time] or [batch] if only one average is taken; [batch, time] if none is. As TensorFlow's
// sequence_loss.
Output SequenceLoss(const Scope& scope, const Input& logits, const Input& targets,
                    const SequenceLossOptions& options = {});

}  // namespace millrace::losses
