// How good a model is, for people.
#pragma once

#include "millrace/api/input.h"

namespace millrace::metrics {

// The share of examples whose largest logit is that of the label. labels: int32 or int64 [batch];
// logits: [batch, classes].
Output Accuracy(const Scope& scope, const Input& labels, const Input& logits);
// Their number, as int64: sums over batches of different sizes add up.
Output NumCorrect(const Scope& scope, const Input& labels, const Input& logits);

}  // namespace millrace::metrics
