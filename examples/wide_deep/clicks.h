// Clicks on advertisements, invented: 13 numbers and 26 categories for each, in the shape of the Criteo data set. The
// same on every machine, so that nothing is downloaded and every run sees the same signal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/millrace.h"

inline constexpr int kNumbers = 13, kCategories = 26;

struct ClicksOptions {
  // The number of values of each category; a few of them are frequent.
  int64_t values = 1000;
  int64_t batch_size = 256;
  // Example i of a pass is number first + (i / batch_size) * stride * batch_size + i % batch_size: each worker has its
  // own batches.
  int64_t first = 0;
  int64_t stride = 1;
  // Negative: endless.
  int64_t batches = -1;
};

// "I1", ..., "I13" (float [batch, 1]), "C1", ..., "C26" (string [batch, 1]).
std::vector<std::string> FeatureNames();
// Batches of the features in this order and the label, int64 [batch, 1]. Whether somebody clicks depends on all of the
// features: a perfect model has an AUC of about 0.87.
millrace::Dataset Clicks(const ClicksOptions& options);
