// Metrics.
#pragma once

#include "millrace/api/input.h"

namespace millrace::metrics {

// The fraction of examples whose largest logit is that of the label. labels: int32 or int64 [batch]; logits: [batch,
// classes].
Output Accuracy(const Scope& scope, const Input& labels, const Input& logits);
// The number of such examples, as int64, which can be summed over batches of different sizes.
Output NumCorrect(const Scope& scope, const Input& labels, const Input& logits);

}  // namespace millrace::metrics
